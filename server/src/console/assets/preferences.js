// The settings of a reader: mutes, blocks, lists, rules and read marker.

import { ask, userPath } from './api.js';
import { act, confirmed, element, facts, saved } from './dom.js';
import { rowText } from './follows.js';
import { postLink } from './post.js';
import { fill } from './table.js';
import { ago, count, moment } from './words.js';

const LIMIT = 20;
/** The maximum number of lists of a reader. */
const LISTS = 100;

/** Shows a setting of a reader. @param {string} part `mutes`, `blocks`, `lists`, `rules` or `marker` @param {HTMLElement} box */
export const preparePreference = (part, user, box) => new Preference(part, user, box).load();

class Preference {
  #part;
  #user;
  #box;
  /** The open lists. */
  #open = new Set();

  constructor(part, user, box) {
    [this.#part, this.#user, this.#box] = [part, user, box];
  }

  async load() {
    try {
      fill(this.#box, await this.#make(this.#part));
    } catch (refusal) {
      fill(this.#box, [element('p', { class: 'note error' }, refusal.message)]);
    }
  }

  #make(part) {
    if (part === 'lists') return this.#lists();
    if (part === 'rules') return this.#rules();
    if (part === 'marker') return this.#marker();
    return this.#sources(part, part === 'mutes' ? ['Mute', 'Unmute'] : ['Block', 'Unblock'], (id) => userPath(this.#user, part, id));
  }

  /** A list of sources that can be added to and removed from. */
  async #sources(part, [add, remove], pathOf, listPath = userPath(this.#user, part), reload = () => this.load()) {
    const { json } = await ask('GET', `${listPath}?limit=${LIMIT}`);
    const note = element('p', { class: 'note', role: 'status' });
    const row = (source) => {
      const { id } = source;
      const button = element('button', { type: 'button', class: 'quiet', 'aria-label': `${remove} ${id}` }, remove);
      button.addEventListener('click', async () => {
        if (await act(button, note, () => ask('DELETE', pathOf(id)).then(() => ''))) await reload();
      });
      return element('li', {}, rowText(source), button);
    };
    const rows = json.items.length ? json.items.map(row) : [element('li', { class: 'hint' }, 'None.')];
    if (json.next) rows.push(element('li', { class: 'hint' }, 'The API lists the others.'));
    const form = addForm(`${add} a source`, add, note, (id) => ask('PUT', pathOf(id)).then(() => ''), reload);
    return [form, note, element('ul', { class: 'rows' }, ...rows)];
  }

  async #lists() {
    const { json } = await ask('GET', `${userPath(this.#user, 'lists')}?limit=${LISTS}`);
    const reload = () => this.load();
    const one = ({ name, members }) => {
      const inside = element('div');
      const made = element('details', { open: this.#open.has(name) }, element('summary', {}, `${name} (${count(members)})`), inside);
      const path = (...rest) => userPath(this.#user, 'lists', name, ...rest);
      const show = async () => {
        const parts = await this.#sources('lists', ['Add', 'Remove'], (id) => path('members', id), path('members'), show);
        fill(inside, [...parts, this.#deleteList(name, path(), reload)]);
      };
      made.addEventListener('toggle', () => {
        this.#open[made.open ? 'add' : 'delete'](name);
        if (made.open) show().catch((refusal) => fill(inside, [element('p', { class: 'note error' }, refusal.message)]));
      });
      return element('li', {}, made);
    };
    const rows = json.items.length ? json.items.map(one) : [element('li', { class: 'hint' }, 'None.')];
    return [this.#newList(reload), element('ul', { class: 'rows whole' }, ...rows)];
  }

  #newList(reload) {
    const note = element('p', { class: 'note', role: 'status' });
    const name = element('input', { required: true, maxlength: 128, 'aria-label': 'Name of the list', placeholder: 'List', autocapitalize: 'none' });
    const source = element('input', { required: true, maxlength: 128, 'aria-label': 'First member', placeholder: 'Member', autocapitalize: 'none' });
    const form = element('form', { class: 'inline', autocomplete: 'off' }, name, source, element('button', { type: 'submit' }, 'Create'));
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const path = userPath(this.#user, 'lists', name.value.trim(), 'members', source.value.trim());
      if (await act(form, note, () => ask('PUT', path).then(() => ''))) await reload();
    });
    return element('div', {}, form, note);
  }

  #deleteList(name, path, reload) {
    const note = element('p', { class: 'note', role: 'status' });
    const button = element('button', { type: 'button', class: 'danger' }, 'Delete the list…');
    button.addEventListener('click', async () => {
      if (!(await confirmed('Delete this list?', `This deletes the list ${name} of ${this.#user}. It does not change any follows.`, 'Delete'))) return;
      if (await act(button, note, () => ask('DELETE', path).then(() => ''))) await reload();
    });
    return element('p', { class: 'actions' }, button, note);
  }

  async #rules() {
    const path = userPath(this.#user, 'rules');
    const { json: rules } = await ask('GET', path);
    const note = element('p', { class: 'note', role: 'status' });
    const save = (name) => (value) => ask('PATCH', path, { [name]: value });
    const check = (name, text) => {
      const input = element('input', { type: 'checkbox', checked: rules[name] });
      saved(input, note, { read: () => input.checked, write: (value) => (input.checked = value) }, save(name));
      return element('label', { class: 'check' }, input, text);
    };
    const replies = element('select', {}, ...['followed', 'all', 'none'].map((value) => element('option', { value, selected: rules.replies === value }, REPLIES[value])));
    saved(replies, note, { read: () => replies.value, write: (value) => (replies.value = value) }, save('replies'));
    const most = element('input', { type: 'number', min: 1, inputmode: 'numeric', placeholder: 'no limit', value: rules.per_source_max });
    const number = { read: () => (most.value ? Number(most.value) : null), write: (value) => (most.value = value ?? '') };
    saved(most, note, number, save('per_source_max'));
    return [
      check('show_own', 'show own posts'),
      check('reposts', 'show reposts'),
      check('notify', 'report posts missed while asleep'),
      element('label', { class: 'field' }, 'Replies', replies),
      element('label', { class: 'field' }, 'Maximum entries per author', most),
      note,
    ];
  }

  async #marker() {
    const path = userPath(this.#user, 'marker');
    const { json } = await ask('GET', path);
    const note = element('p', { class: 'note', role: 'status' });
    const unread = `${count(json.unread)}${json.capped ? ' or more' : ''}${json.complete ? '' : ', as far as known'}`;
    const button = element('button', { type: 'button' }, 'Mark all as read');
    button.addEventListener('click', () =>
      act(button, note, async () => {
        const { json: page } = await ask('GET', `${userPath(this.#user, 'feed')}?limit=1`);
        if (!page.items.length) throw new Error('The feed is empty.');
        await ask('PUT', path, { cursor: page.items[0].cursor });
        await this.load();
      }),
    );
    return [
      element('dl', { class: 'facts' }, ...facts([['Unread', unread], ['Read up to', json.cursor ? placeOf(json.cursor) : 'nothing yet']])),
      element('p', { class: 'actions' }, button),
      note,
      element('p', { class: 'hint' }, '“Mark read” on a post of the feed moves the marker to that post.'),
    ];
  }
}

// The alphabet of cursors, in the order of its bytes.
const ALPHABET = '-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz';

/** The post at which a cursor stands, and its time. The cursor contains both, so this works for a deleted post too. */
function placeOf(cursor) {
  // The part after a dot is for paging only.
  const [text] = cursor.split('.');
  const bits = [...text].reduce((all, letter) => all * 64n + BigInt(ALPHABET.indexOf(letter)), 0n) >> 2n;
  const [kind, time, post] = [bits >> 128n, ((bits >> 64n) & (2n ** 64n - 1n)) - 2n ** 63n, bits & (2n ** 64n - 1n)];
  if (text.length !== 23 || kind !== 1n) return `the post with the cursor ${cursor}`;
  const at = new Date(Number(time / 1000n)).toISOString();
  return element('span', {}, postLink(String(post)), element('span', { class: 'hint', title: moment(at) }, ` published ${ago(at)}`));
}

const REPLIES = { followed: 'to followed sources and posts', all: 'all', none: 'none' };

function addForm(label, button, note, add, reload) {
  const input = element('input', { required: true, maxlength: 128, 'aria-label': label, placeholder: 'bob', autocapitalize: 'none', spellcheck: 'false' });
  const form = element('form', { class: 'inline', autocomplete: 'off' }, input, element('button', { type: 'submit' }, button));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (await act(form, note, () => add(input.value.trim()))) await reload();
  });
  return form;
}
