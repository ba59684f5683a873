// The What if view: switch nodes, edges and features off, set values; the model answers at once.
import { get } from './api.js';
import { change, state } from './state.js';
import { draw, make, plain } from './tools.js';
import { createGraphView } from './graph.js';
import { classBars, failure, graphCard, hasQuestion, isPredicted, labelled, nodeNumber, nodeWords, outputName, percentage, whichOf } from './parts.js';
import { drawLegend } from './tables.js';
import { nothingChosen, notPredicted } from './why.js';

const LISTS = ['nodes_off', 'edges_off', 'features_off', 'set'];
const split = (text) => (text ? text.split(',') : []);
const read = (now) => Object.fromEntries(LISTS.map((name) => [name, split(now[name])]));
const join = (changes) => Object.fromEntries(LISTS.map((name) => [name, changes[name].join(',') || null]));

let current = null;

export const undo = () => current?.undo();
export const reset = () => current?.reset();
export const leaveWhatIf = () => { current = null; };

export const whatIfView = async (main, about) => {
  const now = state();
  if (!about.live) {
    main.replaceChildren(failure(new Error('This run is shown without its model, so there is nothing to ask. Start with: graphsvx serve DATASET --model MODEL')));
    return;
  }
  if (!hasQuestion(now)) {
    main.replaceChildren(nothingChosen(about));
    return;
  }
  if (now.node && !isPredicted(about, nodeNumber(about, now.node))) {
    main.replaceChildren(notPredicted(about, now.node));
    return;
  }
  // The back button within this view changes what is off, not the page.
  const which = { ...whichOf(now), model: now.model };
  const key = JSON.stringify(which);
  if (current?.key === key && main.contains(current.root)) {
    current.load(read(now));
    return;
  }
  const { card, svg, view } = graphCard(createGraphView, draw, 'Graph to change',
    make('span', { class: 'hint', text: 'Click nodes and edges to switch them off and on.' }));
  svg.id = 'graph';
  const legend = make('div', { class: 'legend' });
  card.append(legend);
  const scores = make('section', { class: 'card', id: 'scores', 'aria-live': 'polite', 'aria-label': 'Prediction' });
  const list = make('section', { class: 'card', id: 'changes', 'aria-label': 'Changes' });
  const features = make('section', { class: 'card wide', id: 'features', 'aria-label': 'Features' });
  const root = make('div', { class: 'what-if' }, card, make('div', { class: 'side' }, scores, list), features);
  main.replaceChildren(root);

  let changes = read(now);
  let record = null;
  let at = now.node ? nodeNumber(about, now.node) : null;
  const lineOf = (i) => record.graph.lines[i].slice(0, 2).map((dot) => record.graph.dots[dot].id);
  const edgeKey = (u, v) => `${Math.min(u, v)}-${Math.max(u, v)}`;
  const before = [];

  const mark = () => {
    if (!record?.graph) return;
    const edges = new Set(record.graph.lines.map((_, i) => i).filter((i) => changes.edges_off.includes(edgeKey(...lineOf(i)))));
    view.markOff(new Set(changes.nodes_off.map(Number)), edges);
  };

  let running = null;
  let answered = Promise.resolve();
  const ask = async () => {
    running?.abort();
    running = new AbortController();
    const started = performance.now();
    try {
      const answer = await get('predict', { ...which, ...join(changes) }, running.signal);
      showScores(answer);
      performance.measure('toggle', { start: started });
    } catch (error) {
      if (error.name !== 'AbortError') scores.replaceChildren(failure(error));
    }
  };

  const showScores = (answer) => {
    const was = answer.before.indexOf(Math.max(...answer.before));
    const flipped = about.scale !== 'value' && answer.predicted !== was;
    const verdict = flipped ? `Now ${outputName(about, answer.predicted)}, was ${outputName(about, was)}`
      : answer.changes ? `Still ${outputName(about, answer.predicted)}` : outputName(about, answer.predicted);
    scores.replaceChildren(make('h2', { text: answer.name ?? 'Prediction' }),
      about.scale === 'value' ? null : make('p', { class: flipped ? 'verdict flipped' : 'verdict', id: 'verdict', text: `${verdict}, ${percentage(answer.scores[answer.predicted])}` }),
      classBars(about, answer.scores, { before: answer.before }));
    scores.dataset.scores = JSON.stringify(answer.scores);
  };

  const apply = (next, { remember = true } = {}) => {
    if (remember) before.push(changes);
    changes = next;
    answered = ask();
    mark();
    showChanges();
    showFeatures();
    change(join(changes), { quiet: true, replace: !remember });
  };

  const toggle = (name, value) => {
    const rest = changes[name].filter((entry) => entry !== value);
    apply({ ...changes, [name]: rest.length === changes[name].length ? [...rest, value] : rest });
  };

  const nameOf = (node) => {
    const dot = record?.graph?.dots.find((entry) => entry.count === 1 && entry.id === nodeNumber(about, String(node)));
    return dot && dot.label !== String(dot.id) ? dot.label : nodeWords(about, node);
  };
  const words = (name, value) => {
    if (name === 'nodes_off') return `${nameOf(value)} off`;
    if (name === 'edges_off') return `edge ${value.split('-').map((end) => nameOf(end).replace(/^node /, '')).join(' – ')} off`;
    if (name === 'features_off') return `${featureNames.get(value) ?? `feature ${value}`} at its mean`;
    const [node, column, number] = value.split(':');
    return `${featureNames.get(column) ?? `feature ${column}`} of ${nameOf(node)} = ${number}`;
  };
  const featureNames = new Map();

  const showChanges = () => {
    const entries = LISTS.flatMap((name) => changes[name].map((value) => [name, value]));
    const button = (text, id, act, disabled) => make('button', { type: 'button', id, text, disabled, on: { click: act } });
    list.replaceChildren(make('h2', { text: 'Changes' }),
      entries.length
        ? make('ul', { class: 'changes' }, ...entries.map(([name, value]) => make('li', {}, make('span', { text: words(name, value) }),
          make('button', { type: 'button', text: '×', 'aria-label': `Take back: ${words(name, value)}`, on: { click: () => toggle(name, value) } }))))
        : make('p', { class: 'hint', text: 'Nothing is changed yet. Switch something off: the model answers for exactly that graph.' }),
      make('div', { class: 'buttons' }, button('Undo', 'undo', undoLast, !before.length), button('Reset', 'reset', resetAll, !entries.length),
        button('Copy link', 'share', share, false)));
  };

  const undoLast = () => { if (before.length) apply(before.pop(), { remember: false }); };
  const resetAll = () => apply(Object.fromEntries(LISTS.map((name) => [name, []])));
  const share = async (event) => {
    const target = event.target;
    try {
      await navigator.clipboard.writeText(window.location.href);
      target.textContent = 'Copied';
    } catch {
      target.textContent = 'The address of this page is the link';
    }
  };

  const search = make('input', { type: 'search', placeholder: 'name or number', 'aria-label': 'Find a feature' });
  const rows = make('tbody');
  let matching = [];
  const loadFeatures = async () => {
    const place = at === null ? {} : { at };
    const answer = await get('features', { ...which, ...place, q: search.value, limit: 30 });
    matching = answer.features;
    at = answer.node;
    matching.forEach((feature) => featureNames.set(String(feature.id), feature.name));
    title.textContent = at === null ? 'Features (means of the graph)' : `Features of ${nameOf(at)}`;
    none.hidden = answer.total > 0 || search.value !== '';
    showFeatures();
    showChanges();
  };
  const title = make('h2', { text: 'Features' });
  const none = make('p', { class: 'hint', hidden: true, text: 'This node has no features that could be changed.' });
  const showFeatures = () => {
    const centre = at !== null && (which.link ?? which.node ?? '').split(',').map((end) => nodeNumber(about, end)).includes(at);
    rows.replaceChildren(...matching.map((feature) => {
      const id = String(feature.id);
      const off = changes.features_off.includes(id);
      const mine = changes.set.find((entry) => entry.startsWith(`${at}:${id}:`));
      const input = make('input', { type: 'number', step: 'any', value: mine ? mine.split(':')[2] : feature.value, 'aria-label': `Value of ${feature.name}`, disabled: off || at === null });
      input.addEventListener('change', () => {
        const rest = changes.set.filter((entry) => entry !== mine);
        const value = Number(input.value);
        if (input.value === '' || !Number.isFinite(value)) return;
        apply({ ...changes, set: value === feature.value ? rest : [...rest, `${at}:${id}:${value}`] });
      });
      const canOff = centre || about.task === 'graph';
      return make('tr', { class: off || mine ? 'changed' : '' }, make('td', { class: 'name', text: feature.name }), make('td', {}, input),
        make('td', { class: 'number', text: plain(feature.mean) }),
        make('td', {}, canOff ? make('button', { type: 'button', class: 'switch', role: 'switch', 'aria-checked': String(!off), 'data-feature': id,
          'aria-label': `${feature.name} on`, on: { click: () => toggle('features_off', id) } }, make('i')) : null));
    }));
  };
  let timer;
  search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(loadFeatures, 200); });
  features.replaceChildren(make('div', { class: 'toolbar' }, title, labelled('Find', search)), none,
    make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Values of features' }, make('table', {},
      make('thead', {}, make('tr', {}, ...['Feature', 'Value', 'Mean', 'On'].map((text) => make('th', { scope: 'col', text })))), rows)));

  current = { key, root, undo: undoLast, reset: resetAll, load: (next) => { changes = next; mark(); ask(); showChanges(); showFeatures(); } };
  showChanges();
  ask();
  try {
    record = await get('explain/page', { ...which, samples: 100 });
    if (!main.contains(root)) return;
    if (record.graph) {
      view.show(record.graph, record.target_row, (index) => {
        if (index === null) return;
        const dot = record.graph.dots[index];
        if (dot.count > 1) return;
        const other = at !== dot.id && about.task !== 'graph';
        if (other) at = dot.id;
        if (!dot.centre) toggle('nodes_off', String(dot.id));
        if (other) answered.then(loadFeatures); // the prediction comes first
      }, (i) => toggle('edges_off', edgeKey(...lineOf(i))));
      mark();
      if (record.typed) drawLegend(legend, record, svg);
    }
    await loadFeatures();
  } catch (error) {
    card.replaceChildren(failure(error));
  }
};
