// Navigation: the index beside the operations, the search in both, the mark of the current operation, and the menu of narrow windows.

import { byId, element, say } from '/console/dom.js';

/** The width up to which the index is a menu; docs.css has the same. */
const NARROW = matchMedia('(max-width: 52rem)');
/** An operation is current if its top is at most this far below the place where links land. */
const LANDED_MAX_PX = 8;

const isMenuOpen = () => document.body.classList.contains('menu-open');
const targetOf = (link) => byId(decodeURIComponent(link.hash.slice(1)));

function fillIndex(tags, operations) {
  const item = (id, text) => element('li', {}, element('a', { href: `#${id}` }, text));
  const group = (name, items) => element('section', {}, element('h2', {}, name), element('ul', {}, ...items));
  const ofTag = ({ name }) => {
    const inside = operations.filter(({ told }) => told.tags.includes(name));
    return group(name, inside.map(({ told }) => item(told.operationId, told.summary)));
  };
  byId('index').append(...tags.map(ofTag), group('Reference', [item('schemas', 'Schemas')]));
}

/** The searched text of an operation: name, path, summary, and the codes of its errors. */
function textOf({ method, path, told }) {
  const codes = Object.values(told.responses).flatMap(({ 'x-codes': some = [] }) => some);
  return [method, path, told.operationId, told.summary, ...codes].join(' ').toLowerCase();
}

/** Hides operations and schemas that lack one of the words, and groups without any hit. */
function find(operations) {
  const typed = byId('find').value.trim();
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const hasAll = (text) => words.every((word) => text.includes(word));
  let found = 0;
  for (const operation of operations) {
    const isFound = hasAll(textOf(operation));
    byId(operation.told.operationId).hidden = !isFound;
    found += isFound ? 1 : 0;
  }
  const schemas = [...document.querySelectorAll('.schema')];
  for (const schema of schemas) schema.hidden = !hasAll(schema.firstChild.textContent.toLowerCase());
  const foundSchemas = schemas.filter(({ hidden }) => !hidden).length;

  byId('schemas').hidden = foundSchemas === 0;
  for (const section of document.querySelectorAll('#operations > section')) section.hidden = !section.querySelector('.operation:not([hidden])');
  for (const link of document.querySelectorAll('#index a')) link.parentElement.hidden = targetOf(link).hidden;
  for (const section of document.querySelectorAll('#index > section')) section.hidden = !section.querySelector('li:not([hidden])');
  // Hits come first, not below the introduction.
  byId('intro').hidden = words.length > 0;

  const counts = `${found} of ${operations.length} operations, ${foundSchemas} of ${schemas.length} schemas`;
  say(byId('found'), !words.length ? '' : found + foundSchemas ? counts : `Nothing found for “${typed}”.`);
  mark();
}

/** Scrolls the index until a link is visible. `scrollIntoView` and `focus` would scroll the page too. */
function bringInSight(link) {
  const nav = byId('navigation');
  const [own, box] = [link.getBoundingClientRect(), nav.getBoundingClientRect()];
  const isAbove = own.top < byId('search').getBoundingClientRect().bottom;
  if (isAbove || own.bottom > box.bottom) nav.scrollTop += own.top - box.top - box.height / 2;
}

/** Marks the current operation in the index, and keeps its link visible. */
function mark() {
  const links = [...document.querySelectorAll('#index a')];
  const top = parseFloat(getComputedStyle(byId('schemas')).scrollMarginTop) + LANDED_MAX_PX;
  // Hidden elements have no box.
  const isReached = (link) => targetOf(link).getClientRects()[0]?.top <= top;
  const current = links.findLast(isReached);
  for (const link of links) {
    if (link === current) link.setAttribute('aria-current', 'location');
    else link.removeAttribute('aria-current');
  }
  if (current) bringInSight(current);
}

/** Sets the height of the header for the styles. Its links take two lines in the narrowest windows and with large text. */
function measureHeader() {
  document.documentElement.style.setProperty('--header', `${document.querySelector('header').offsetHeight}px`);
}

function setMenu(isOpen) {
  document.body.classList.toggle('menu-open', isOpen);
  byId('menu').setAttribute('aria-expanded', String(isOpen));
  // The menu covers the content: Tab and screen readers must skip it.
  byId('content').inert = isOpen;
  if (!isOpen) return;
  const link = document.querySelector('#index [aria-current]') ?? document.querySelector('#index li:not([hidden]) a') ?? byId('find');
  link.focus({ preventScroll: true });
  bringInSight(link);
}

/** Opens the element that the address names, and scrolls to it. */
function follow() {
  const named = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (!named) return;
  if (named.closest('[hidden]')) clearSearch();
  if (named.tagName === 'DETAILS') named.open = true;
  named.scrollIntoView();
  named.querySelector('summary')?.focus({ preventScroll: true });
}

function clearSearch() {
  byId('find').value = '';
  byId('find').dispatchEvent(new Event('input'));
}

function listen() {
  byId('menu').addEventListener('click', () => setMenu(!isMenuOpen()));
  NARROW.addEventListener('change', () => setMenu(false));
  byId('index').addEventListener('click', ({ target }) => {
    const link = target.closest('a');
    if (!link) return;
    setMenu(false);
    // The same address causes no event, but the user may have scrolled away.
    if (link.hash === location.hash) follow();
  });
  byId('find').addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !event.target.value) return;
    event.preventDefault();
    // The first Escape clears, the next one closes the menu.
    event.stopPropagation();
    clearSearch();
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && isMenuOpen()) {
      setMenu(false);
      byId('menu').focus({ preventScroll: true });
    }
    const isTyped = event.target.closest?.('input, textarea, select, dialog');
    if (event.key !== '/' || isTyped || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (NARROW.matches) setMenu(true);
    byId('find').focus();
  });
  addEventListener('hashchange', follow);
}

/** Starts the navigation, after the page has all operations and schemas. */
export function navigate(tags, operations) {
  fillIndex(tags, operations);
  byId('find').addEventListener('input', () => find(operations));
  listen();
  measureHeader();
  let isDue = false;
  const markSoon = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      mark();
    });
  };
  addEventListener('scroll', markSoon, { passive: true });
  addEventListener('resize', () => {
    measureHeader();
    markSoon();
  });
  follow();
  mark();
}
