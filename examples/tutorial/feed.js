const byId = (id) => document.getElementById(id);
const element = (name, text, more) => Object.assign(document.createElement(name), { textContent: text, ...more });

const { user, server } = await (await fetch('/me')).json();
byId('user').textContent = user;

let token = null;
async function newToken() {
  const answer = await fetch('/token', { method: 'POST' });
  // Signed out in another window: the page shows the sign-in form again.
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(`the app answered ${answer.status}`);
  token = await answer.text();
  return token;
}

const { Feed } = await import(`${server}/tidewire.js`).catch((error) => {
  byId('state').textContent = `${server} does not answer. Is it running with --cors-origins ${location.origin}?`;
  throw error;
});
const feed = new Feed({ server, user, token: newToken });
feed.addEventListener('change', () => {
  byId('feed').replaceChildren(...feed.items.map(entry));
  byId('more').hidden = !feed.hasMore;
});
feed.addEventListener('state', () => {
  byId('state').textContent = feed.error ? `${feed.state}: ${feed.error.message}` : feed.state;
});
byId('more').addEventListener('click', () => feed.loadMore());
byId('sign-out').addEventListener('submit', () => feed.stop());
feed.start();

function entry({ post, reposts }) {
  // `element` and `append` add text: a post that contains HTML is shown as it was typed.
  const line = element('li', '');
  line.append(element('b', post.author), ` ${textOf(post)} `);
  if (post.reply_to) {
    const original = feed.items.find((item) => item.post.id === post.reply_to)?.post;
    line.append(`(in reply to ${original ? `${original.author}: ${textOf(original)}` : 'another post'}) `);
  }
  const reposters = [...new Set(reposts.map((repost) => repost.user))];
  if (reposters.length > 0) line.append(`(reposted by ${reposters.join(', ')}) `);
  line.append(
    element('button', 'Reply', { onclick: () => replyTo(post) }),
    element('button', 'Repost', { onclick: () => attempt(() => publish({ body: {}, repost_of: post.id })) }),
  );
  return line;
}

function textOf(post) {
  return String(post.body?.text ?? '');
}

let parent = null;
function replyTo(post) {
  parent = post;
  byId('reply').hidden = !post;
  byId('replied').textContent = post ? `Reply to ${post.author}: ${textOf(post)}` : '';
  byId('text').focus();
}
byId('cancel').addEventListener('click', () => replyTo(null));

onSubmit('publish', async (form) => {
  await publish({ body: { text: byId('text').value }, reply_to: parent?.id });
  form.reset();
  replyTo(null);
});

function publish(post) {
  return call('POST', 'posts', { author: user, ...post });
}

async function call(method, path, body, isRepeated = false) {
  const headers = { Authorization: `Bearer ${token ?? (await newToken())}`, 'Content-Type': 'application/json' };
  const answer = await fetch(`${server}/v1/${path}`, { method, headers, body: JSON.stringify(body) });
  if (answer.status === 401 && !isRepeated) {
    await newToken();
    return call(method, path, body, true);
  }
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.status === 204 ? null : answer.json();
}

function onSubmit(id, action) {
  byId(id).addEventListener('submit', (event) => {
    event.preventDefault();
    attempt(() => action(event.target));
  });
}

async function attempt(action) {
  byId('problem').textContent = '';
  try {
    await action();
  } catch (error) {
    byId('problem').textContent = error.message;
  }
}

onSubmit('follow', async (form) => {
  await call('PUT', `users/${user}/following/${byId('name').value}`);
  form.reset();
  await showFollowing();
});

async function unfollow(id) {
  await call('DELETE', `users/${user}/following/${encodeURIComponent(id)}`);
  await showFollowing();
}

async function showFollowing() {
  const { items } = await call('GET', `users/${user}/following?limit=100`);
  const lines = items.map(({ id }) => {
    const line = element('li', `${id} `);
    line.append(element('button', 'Unfollow', { onclick: () => attempt(() => unfollow(id)) }));
    return line;
  });
  byId('following').replaceChildren(...lines);
}
await attempt(showFollowing);
