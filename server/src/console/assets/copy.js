// Text that can be copied by a button.

import { element } from './dom.js';

const DONE_MS = 2000;

/** A button that copies the text of an element. @param {HTMLElement} source @param {string} [name] its label, if not "Copy" */
export function copyButton(source, name = null) {
  const button = element('button', { type: 'button', class: 'quiet', 'aria-live': 'polite', 'aria-label': name }, 'Copy');
  button.addEventListener('click', async () => {
    // Without a secure context there is no clipboard: then the text is selected.
    const isCopied = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
    if (!isCopied) getSelection().selectAllChildren(source);
    button.textContent = isCopied ? 'Copied' : 'Selected';
    setTimeout(() => (button.textContent = 'Copy'), DONE_MS);
  });
  return button;
}

/** A text in the font of code, with a button that copies it. */
export function copyable(text) {
  const code = element('code', {}, text);
  return element('span', { class: 'copyable' }, code, copyButton(code, `Copy ${text}`));
}
