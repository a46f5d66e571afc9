/** The protocol of a URL, empty if it is invalid. Not with `URL.canParse`, which older browsers lack. */
function protocolOf(url: string): string {
  try {
    return new URL(url).protocol;
  } catch {
    return '';
  }
}

/** The URLs of the servers. Throws without a URL, or if one has another protocol. */
export function checkedServers(server: string | readonly string[] | undefined): string[] {
  const servers = [server ?? []].flat();
  if (servers.length === 0) throw new TypeError('server: the URL of the server is needed outside of a browser page');
  for (const one of servers) {
    if (!/^https?:$/.test(protocolOf(one))) {
      const said = `server: ${JSON.stringify(one)} does not begin with http:// or https://`;
      const example = /^[\w.-]*:\d+$/.test(one) ? one.replace(/^:/, 'localhost:') : 'localhost:8080';
      throw new TypeError(`${said}: write it as http://${example}`);
    }
  }
  return servers;
}

/** All likely causes of a failed connection: browsers do not report the actual one to pages. */
export function notConnected(server: string): string {
  const { origin, protocol } = globalThis.location ?? {};
  const causes = ['it is not running or cannot be reached'];
  if (origin && origin !== new URL(server).origin) {
    causes.push(`it refuses pages of ${origin}, because its --cors-origins does not list them`);
    if (protocol === 'https:' && server.startsWith('http:')) causes.push('a page with https cannot use one with http');
  }
  causes.push('it or a proxy in front of it refused the connection');
  return `no connection to ${server}: ${causes.join('; or ')}`;
}
