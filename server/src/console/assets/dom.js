// Helpers for the document. They insert text as text only.

/** Returns the element with this id, which must exist. */
export const byId = (id) => document.getElementById(id);

/**
 * Makes an element.
 * @param {string} tag
 * @param {object} [attributes] null and undefined are omitted
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

/** Shows a message next to a control. */
export function say(note, text, isError = false) {
  note.classList.toggle('error', isError);
  note.textContent = text;
}

// The controls with an action in progress.
const running = new WeakSet();

/**
 * Runs the action of a control, once at a time, and shows an error next to it.
 * @param {HTMLElement} control busy meanwhile; it keeps the focus
 * @param {HTMLElement} note
 * @param {() => Promise<string|void>} action returns the message of success
 * @returns {Promise<boolean>} true if it succeeded
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
 * Saves the value of a control. A newer value is saved afterwards; a value that cannot be saved is reset.
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
    // Unfinished input is not a choice.
    chosen = read();
    if (running.has(control)) return;
    while (chosen !== last) {
      const wanted = chosen;
      if (await act(control, note, () => save(wanted).then(() => 'Saved.'))) last = wanted;
      // A newer value is tried next.
      else if (chosen === wanted) write((chosen = last));
    }
  });
}

/**
 * Asks for confirmation of an action that cannot be undone.
 * @param {string} [name] the text to type as confirmation
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
