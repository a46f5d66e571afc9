/** The protocol of a URL, empty if it is none. Not with `URL.canParse`, which older browsers lack. */
function protocolOf(url: string): string {
  try {
    return new URL(url).protocol;
  } catch {
    return '';
  }
}

/** The URLs of the servers. Throws if there is none, or one that cannot be connected to. */
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

/** All likely causes of a connection that did not come about: browsers do not tell pages which one it is. */
export function notConnected(server: string): string {
  const { origin, protocol } = globalThis.location ?? {};
  const causes = ['it does not run or cannot be reached'];
  if (origin && origin !== new URL(server).origin) {
    causes.push(`it refuses pages of ${origin}, since its --cors-origins does not name them`);
    if (protocol === 'https:' && server.startsWith('http:')) causes.push('a page with https cannot use one with http');
  }
  causes.push('it or a proxy before it refused the connection');
  return `no connection to ${server}: ${causes.join('; or ')}`;
}
