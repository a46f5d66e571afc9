// Small helpers around the document. Text goes in as text only.

/** The element of this id, which the page has. */
export const byId = (id) => document.getElementById(id);

/**
 * Makes an element.
 * @param {string} tag
 * @param {object} [attributes] null and undefined are left out
 * @param {...(Node|string|null)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Makes the `dt` and `dd` of facts. */
export function facts(pairs) {
  return pairs.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]);
}

/** Says something next to a control. */
export function say(note, text, isError = false) {
  note.classList.toggle('error', isError);
  note.textContent = text;
}

// The controls that have something under way.
const running = new WeakSet();

/**
 * Does what a control asks for, once at a time, and says next to it what went wrong.
 * @param {HTMLElement} control busy meanwhile; it keeps the focus
 * @param {HTMLElement} note
 * @param {() => Promise<string|void>} action returns what to say of its success
 * @returns {Promise<boolean>} whether it succeeded
 */
export async function act(control, note, action) {
  if (running.has(control)) return false;
  running.add(control);
  control.setAttribute('aria-busy', 'true');
  say(note, '');
  try {
    say(note, (await action()) ?? '');
    return true;
  } catch (error) {
    say(note, error.message, true);
    return false;
  } finally {
    running.delete(control);
    control.removeAttribute('aria-busy');
  }
}

/**
 * Saves what a control is set to. What it is set to meanwhile is saved after that; what cannot be saved is taken back.
 * @param {HTMLElement} control
 * @param {HTMLElement} note
 * @param {{read: () => any, write: (value: any) => void}} value how the control is read and set
 * @param {(value: any) => Promise<void>} save
 */
export function saved(control, note, { read, write }, save) {
  let last = read();
  let chosen = last;
  control.addEventListener('change', async () => {
    if (!control.reportValidity()) return;
    // What is typed and not finished yet is no choice.
    chosen = read();
    if (running.has(control)) return;
    while (chosen !== last) {
      const wanted = chosen;
      if (await act(control, note, () => save(wanted).then(() => 'Saved.'))) last = wanted;
      // Something newer is tried in its turn.
      else if (chosen === wanted) write((chosen = last));
    }
  });
}

/**
 * Asks before something that cannot be taken back.
 * @param {string} [name] what has to be typed to confirm it
 * @returns {Promise<boolean>}
 */
export function confirmed(title, text, yes, name = '') {
  const input = element('input', { autocapitalize: 'none', spellcheck: 'false', autocomplete: 'off' });
  const named = name ? element('label', { class: 'field' }, element('span', {}, `Type ${name} to confirm`), ' ', input) : null;
  const cancel = element('button', { type: 'button' }, 'Cancel');
  const button = element('button', { type: 'submit', class: 'danger', value: 'yes', disabled: name !== '' }, yes);
  const dialog = element(
    'dialog',
    { 'aria-labelledby': 'confirm-title', 'aria-describedby': 'confirm-text' },
    element('form', { method: 'dialog' }, element('h2', { id: 'confirm-title' }, title), element('p', { id: 'confirm-text' }, text), named, element('p', { class: 'actions' }, cancel, button)),
  );
  input.addEventListener('input', () => (button.disabled = input.value !== name));
  cancel.addEventListener('click', () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}
