// What a reader has chosen: mutes, blocks, lists, rules, and how far it has read. Each is asked for when it is opened.

import { ask, userPath } from './api.js';
import { act, confirmed, element, facts, saved } from './dom.js';
import { ago, count, moment } from './words.js';

const LIMIT = 20;

/** The folded parts beside the feed. */
export class Preferences {
  #user = '';
  #newest;

  /** @param {() => string|null} newest the cursor of the newest entry that is shown */
  constructor(newest) {
    this.#newest = newest;
    for (const part of ['mutes', 'blocks', 'lists', 'rules', 'marker']) {
      boxOf(part).parentElement.addEventListener('toggle', () => this.#load(part));
    }
  }

  /** Shows those of a reader. */
  show(user) {
    this.#user = user;
    for (const part of ['mutes', 'blocks', 'lists', 'rules', 'marker']) {
      boxOf(part).replaceChildren();
      if (user) this.#load(part);
    }
  }

  /** Another marker was set. */
  marked() {
    this.#load('marker');
  }

  async #load(part) {
    const box = boxOf(part);
    if (!this.#user || !box.parentElement.open) return;
    const user = this.#user;
    try {
      const made = await this.#make(part);
      if (user === this.#user) refill(box, made);
    } catch (refusal) {
      if (user === this.#user) refill(box, [element('p', { class: 'note error' }, refusal.message)]);
    }
  }

  #make(part) {
    if (part === 'lists') return this.#lists();
    if (part === 'rules') return this.#rules();
    if (part === 'marker') return this.#marker();
    return this.#sources(part, part === 'mutes' ? ['Mute', 'Unmute'] : ['Block', 'Unblock'], (id) => userPath(this.#user, part, id));
  }

  /** A list of sources that can be added to and removed from. */
  async #sources(part, [add, remove], pathOf, listPath = userPath(this.#user, part), reload = () => this.#load(part)) {
    const { json } = await ask('GET', `${listPath}?limit=${LIMIT}`);
    const note = element('p', { class: 'note', role: 'status' });
    const row = ({ id, since }) => {
      const button = element('button', { type: 'button', class: 'quiet', 'aria-label': `${remove} ${id}` }, remove);
      button.addEventListener('click', async () => {
        if (await act(button, note, () => ask('DELETE', pathOf(id)).then(() => ''))) await reload();
      });
      return element('li', {}, element('span', {}, id, element('span', { class: 'hint', title: moment(since) }, ` since ${ago(since)}`)), button);
    };
    const rows = json.items.length ? json.items.map(row) : [element('li', { class: 'hint' }, 'None.')];
    if (json.next) rows.push(element('li', { class: 'hint' }, 'The API has the others.'));
    const form = addForm(`${add} a source`, add, note, (id) => ask('PUT', pathOf(id)).then(() => ''), reload);
    return [form, note, element('ul', { class: 'rows' }, ...rows)];
  }

  async #lists() {
    const { json } = await ask('GET', `${userPath(this.#user, 'lists')}?limit=${LIMIT}`);
    const reload = () => this.#load('lists');
    const one = ({ name, members }) => {
      const inside = element('div');
      const made = element('details', { 'data-list': name }, element('summary', {}, `${name} (${count(members)})`), inside);
      const path = (...rest) => userPath(this.#user, 'lists', name, ...rest);
      const fill = async () => {
        const parts = await this.#sources('lists', ['Add', 'Remove'], (id) => path('members', id), path('members'), fill);
        refill(inside, [...parts, this.#deleteList(name, path(), reload)]);
      };
      made.addEventListener('toggle', () => made.open && fill().catch((refusal) => refill(inside, [element('p', { class: 'note error' }, refusal.message)])));
      return element('li', {}, made);
    };
    const rows = json.items.length ? json.items.map(one) : [element('li', { class: 'hint' }, 'None.')];
    return [this.#newList(reload), element('ul', { class: 'rows whole' }, ...rows)];
  }

  #newList(reload) {
    const note = element('p', { class: 'note', role: 'status' });
    const name = element('input', { required: true, maxlength: 128, 'aria-label': 'Name of the list', placeholder: 'List', autocapitalize: 'none' });
    const source = element('input', { required: true, maxlength: 128, 'aria-label': 'Its first member', placeholder: 'Member', autocapitalize: 'none' });
    const form = element('form', { class: 'inline', autocomplete: 'off' }, name, source, element('button', { type: 'submit' }, 'Make'));
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
      if (!(await confirmed('Delete this list?', `The list ${name} of ${this.#user} is deleted. Its members stay followed or not, as they are.`, 'Delete'))) return;
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
      element('label', { class: 'field' }, 'Most entries of one author', most),
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
        const cursor = this.#newest();
        if (!cursor) throw new Error('The feed is empty.');
        await ask('PUT', path, { cursor });
        await this.#load('marker');
      }),
    );
    return [
      element('dl', { class: 'facts' }, ...facts([['Unread', unread], ['Read up to', json.cursor ?? 'nothing yet']])),
      element('p', { class: 'actions' }, button),
      note,
      element('p', { class: 'hint' }, '“Mark read” at a post sets it to that post.'),
    ];
  }
}

const REPLIES = { followed: 'to whom the reader follows', all: 'all', none: 'none' };

const boxOf = (part) => document.querySelector(`[data-part=${part}] > div`);

/** Puts new parts into a folded one. Lists stay open, and the focus stays at the same control, or goes to the first. */
function refill(box, parts) {
  const focused = box.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const open = [...box.querySelectorAll('details[open]')].map((list) => list.dataset.list);
  box.replaceChildren(...parts);
  for (const list of box.querySelectorAll('details')) list.open = open.includes(list.dataset.list);
  if (focused === null) return;
  const controls = [...box.querySelectorAll('input, select, button, summary')];
  const control = controls.find((one) => nameOf(one) === focused) ?? controls[0] ?? box.parentElement.querySelector('summary');
  control.focus({ preventScroll: true });
}

const nameOf = (control) => control.getAttribute('aria-label') ?? control.textContent;

function addForm(label, button, note, add, reload) {
  const input = element('input', { required: true, maxlength: 128, 'aria-label': label, placeholder: 'bob', autocapitalize: 'none', spellcheck: 'false' });
  const form = element('form', { class: 'inline', autocomplete: 'off' }, input, element('button', { type: 'submit' }, button));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (await act(form, note, () => add(input.value.trim()))) await reload();
  });
  return form;
}
