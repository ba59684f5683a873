// The explorer: which view, which prediction, search, keys and theme.
import { get } from './api.js';
import { change, go, onChange, state } from './state.js';
import { byId, make } from './tools.js';
import { choice, classMark, className, failure, hasQuestion, linkWords, nodeKey, nodeNumber, nodeWords } from './parts.js';
import { exploreView } from './explore.js';
import { leaveWhy, openGraph, stopRefining, whyView } from './why.js';
import { leaveWhatIf, reset, undo, whatIfView } from './what_if.js';
import { compareView } from './compare.js';
import { overviewView } from './overview.js';

const VIEWS = {
  graph: ['Graph', exploreView], why: ['Why', whyView], 'what-if': ['What if', whatIfView],
  compare: ['Compare', compareView], overview: ['Overview', overviewView],
};
const main = byId('main');
let about = null;
// What the address says: graphs by number, nodes of typed graphs by type and id.
const keyOf = (id) => (about.task === 'graph' ? id : nodeKey(about, id));
let shown = null;

const viewOf = (now) => (VIEWS[now.view] ? now.view : hasQuestion(now) ? 'why' : about.run && !about.live ? 'overview' : 'graph');

const render = async () => {
  const now = state();
  const view = viewOf(now);
  leaveWhy();
  if (view !== 'what-if') leaveWhatIf();
  byId('tabs').querySelectorAll('button').forEach((tab) => {
    const current = tab.dataset.view === view;
    if (current) tab.setAttribute('aria-current', 'page');
    else tab.removeAttribute('aria-current');
  });
  const which = now.node ? nodeWords(about, now.node) : now.graph ? `graph ${now.graph}` : now.link ? `link ${linkWords(about, now.link)}` : '';
  document.title = [VIEWS[view][0], which, about.title].filter(Boolean).join(' · ');
  main.dataset.view = view;
  const key = `${view} ${which}`;
  if (shown !== null && shown !== key) {
    byId('said-live').textContent = document.title;
    window.scrollTo(0, 0);
  }
  shown = key;
  try {
    await VIEWS[view][1](main, about);
  } catch (error) {
    if (error.name !== 'AbortError') main.replaceChildren(failure(error, openGraph()));
  }
};

const tabs = () => byId('tabs').replaceChildren(...Object.entries(VIEWS).map(([view, [name]]) => {
  const text = view === 'graph' && about.task === 'graph' ? 'Graphs' : name;
  return make('button', { type: 'button', text, 'data-view': view, on: { click: () => change({ view }) } });
}));

// Search: a number or a name; arrows and Enter, or a click.
const search = () => {
  const box = byId('search');
  const hits = byId('hits');
  box.placeholder = about.task === 'graph' ? 'Search graphs' : 'Search nodes';
  box.setAttribute('aria-label', box.placeholder);
  let timer, rows = [], at = -1, requests = 0;
  const close = () => {
    hits.hidden = true;
    box.setAttribute('aria-expanded', 'false');
    box.removeAttribute('aria-activedescendant');
  };
  const pick = (row) => {
    close();
    box.value = '';
    box.blur();
    if (about.task === 'link') go('graph', { first: nodeKey(about, row.id) });
    else go(['why', 'what-if', 'compare'].includes(main.dataset.view) ? main.dataset.view : 'why', { [about.task]: keyOf(row.id) });
  };
  const show = () => {
    hits.replaceChildren(...(rows.length ? rows.map((row, i) => make('li', {
      role: 'option', id: `hit-${i}`, 'aria-selected': String(i === at), on: { mousedown: (event) => { event.preventDefault(); pick(row); } },
    }, make('span', { class: 'name', text: row.name }),
    make('span', { class: 'what' }, row.predicted === null ? null : classMark(about, row.predicted),
      document.createTextNode(row.predicted === null && about.task === 'node' ? 'not predicted' : className(about, row.predicted)),
      row.wrong ? make('em', { text: 'wrong' }) : null)))
      : [make('li', { class: 'hint', role: 'option', 'aria-disabled': 'true', text: 'Nothing found' })]));
    hits.hidden = false;
    box.setAttribute('aria-expanded', 'true');
    if (at >= 0) box.setAttribute('aria-activedescendant', `hit-${at}`);
  };
  box.addEventListener('input', () => {
    clearTimeout(timer);
    if (!box.value.trim()) { close(); return; }
    timer = setTimeout(async () => {
      const number = requests += 1;
      const answer = await get(about.task === 'graph' ? 'graphs' : 'nodes', { q: box.value, limit: 8, model: state().model });
      if (number !== requests) return;
      [rows, at] = [answer.rows, answer.rows.length ? 0 : -1];
      show();
    }, 120);
  });
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { close(); box.blur(); }
    if (hits.hidden) return;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      at = (at + (event.key === 'ArrowDown' ? 1 : -1) + rows.length) % (rows.length || 1);
      show();
    } else if (event.key === 'Enter' && rows[at]) pick(rows[at]);
  });
  box.addEventListener('blur', () => setTimeout(close, 150));
};

let wrong = null;
const nextWrong = async (step) => {
  if (!about.wrong) return;
  const model = state().model;
  if (!wrong || wrong.model !== model) {
    const rows = [];
    while (rows.length < about.wrong) {
      const page = await get(about.task === 'graph' ? 'graphs' : 'nodes', { answer: 'wrong', offset: rows.length, limit: 200, model });
      if (!page.rows.length) break;
      rows.push(...page.rows);
    }
    wrong = { model, ids: rows.map((row) => row.id) };
  }
  const now = nodeNumber(about, state()[about.task] ?? '-1');
  const { ids } = wrong;
  const next = step > 0 ? ids.find((id) => id > now) ?? ids[0] : [...ids].reverse().find((id) => id < now) ?? ids[ids.length - 1];
  const view = ['what-if', 'compare'].includes(main.dataset.view) ? main.dataset.view : 'why';
  go(view, { [about.task]: keyOf(next) });
};

const keys = () => document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select, textarea, dialog')) return;
  const names = Object.keys(VIEWS);
  const act = {
    '/': () => byId('search').focus(), n: () => nextWrong(1), p: () => nextWrong(-1), u: undo, r: reset, s: stopRefining,
    '?': () => byId('keys').showModal(), 1: () => change({ view: names[0] }), 2: () => change({ view: names[1] }),
    3: () => change({ view: names[2] }), 4: () => change({ view: names[3] }), 5: () => change({ view: names[4] }),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// Theme: the system's, until the reader chooses. Storage may be forbidden, for instance in a frame.
const theme = () => {
  const stored = (act) => { try { return act(window.localStorage); } catch { return null; } };
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  const set = (dark) => {
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    byId('theme').textContent = dark ? 'Light' : 'Dark';
    byId('theme').setAttribute('aria-pressed', String(dark));
  };
  const wish = stored((storage) => storage.getItem('graphsvx-theme'));
  set(wish ? wish === 'dark' : system.matches);
  byId('theme').addEventListener('click', () => {
    const dark = document.documentElement.dataset.theme !== 'dark';
    set(dark);
    stored((storage) => storage.setItem('graphsvx-theme', dark ? 'dark' : 'light'));
    if (main.dataset.view === 'graph') render();
  });
};

const start = async () => {
  theme();
  try {
    byId('all-sets').hidden = !location.pathname.includes('/sets/');
    about = await get('workspace');
  } catch (error) {
    main.replaceChildren(failure(error));
    return;
  }
  byId('title').textContent = about.title;
  if (about.models.length > 1) {
    byId('model-pick').hidden = false;
    const models = about.models.map((name, i) => [i ? name : '', name]);
    byId('model').replaceWith(choice(models, state().model, (value) => change({ model: value || null }), { id: 'model', 'aria-label': 'Model' }));
  }
  byId('next-wrong').hidden = !about.wrong;
  byId('next-wrong').addEventListener('click', () => nextWrong(1));
  byId('help').addEventListener('click', () => byId('keys').showModal());
  tabs();
  search();
  keys();
  onChange(render);
  await render();
};

start();
