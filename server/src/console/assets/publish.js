// The dialog to publish a post.

import { ask } from './api.js';
import { act, byId, say } from './dom.js';
import { postLink } from './post.js';

/** Adds the handlers of the dialog. */
export function preparePublishing() {
  const [dialog, form] = [byId('publish-dialog'), byId('publish')];
  byId('write').addEventListener('click', () => openPublishing({ author: new URLSearchParams(location.search).get('user') ?? '' }));
  byId('publish-close').addEventListener('click', () => dialog.close());
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    publish(form);
  });
  form.elements.tags.addEventListener('input', () => sayTags(form));
  form.elements.text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

/** Opens the dialog, for a reply or a repost with the id of that post. @param {{author?: string, reply_to?: string, repost_of?: string}} post */
export function openPublishing(post) {
  const { elements } = byId('publish');
  for (const name of ['reply_to', 'repost_of']) elements[name].value = post[name] ?? '';
  if (post.author) elements.author.value = post.author;
  say(byId('publish-note'), '');
  byId('publish-dialog').showModal();
  elements.text.focus();
}

/** The tags in a text: one for each word, without `#`. */
const tagsIn = (text) => text.split(/[\s,#]+/).filter(Boolean);

/** Shows the tags that the dialog will send: it splits the text at spaces and commas. */
function sayTags(form) {
  const named = tagsIn(form.elements.tags.value);
  byId('tags-sent').textContent = named.length ? `Sent as ${named.length === 1 ? '1 tag' : `${named.length} tags`}: ${named.join(', ')}` : '';
}

async function publish(form) {
  const { author, text, tags, reply_to: answered, repost_of: reposted } = form.elements;
  const note = byId('publish-note');
  let published;
  const send = async () => {
    const post = { author: author.value.trim(), body: text.value ? { text: text.value } : {} };
    const named = tagsIn(tags.value);
    if (named.length) post.tags = named;
    if (answered.value) post.reply_to = answered.value;
    if (reposted.value) post.repost_of = reposted.value;
    if (!text.value && !reposted.value) throw new Error('Write something first.');
    published = (await ask('POST', '/v1/posts', post)).json;
    text.value = answered.value = reposted.value = '';
    text.focus();
  };
  if (await act(form, note, send)) note.replaceChildren('Published as ', postLink(published.id), '.');
}
