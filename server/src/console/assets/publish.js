// The box to publish from.

import { ask } from './api.js';
import { act, byId } from './dom.js';

/** Makes the box work. */
export function preparePublishing() {
  const form = byId('publish');
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    publish(form);
  });
  form.elements.text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

/** Whom to publish as, unless something was entered already. */
export function suggestAuthor(user) {
  const { author } = byId('publish').elements;
  if (author.value === author.defaultValue) author.value = author.defaultValue = user;
}

/** Gets ready for a reply to a post, or a repost of it. */
export function prepare(action, { post }) {
  const { elements } = byId('publish');
  elements.reply_to.value = action === 'reply' ? post.id : '';
  elements.repost_of.value = action === 'repost' ? post.id : '';
  byId('publish-box').open = byId('publish-more').open = true;
  elements.text.focus();
}

function publish(form) {
  const { author, text, tags, reply_to: answered, repost_of: reposted } = form.elements;
  return act(form, byId('publish-note'), async () => {
    const post = { author: author.value.trim(), body: text.value ? { text: text.value } : {} };
    const named = tags.value.split(/[\s,#]+/).filter(Boolean);
    if (named.length) post.tags = named;
    if (answered.value) post.reply_to = answered.value;
    if (reposted.value) post.repost_of = reposted.value;
    if (!text.value && !reposted.value) throw new Error('Write something first.');
    const { json } = await ask('POST', '/v1/posts', post);
    text.value = answered.value = reposted.value = '';
    byId('publish-more').open = false;
    // Unless the user moved the focus out of the form while the server was asked. Some browsers give a clicked button none.
    const { activeElement: focused } = document;
    if (focused === document.body || form.contains(focused)) text.focus();
    return `Published as post ${json.id}.`;
  });
}
