// The Graph view: list with filters beside a map of the graph, or a gallery of graphs.
import { get } from './api.js';
import { change, go, state } from './state.js';
import { make } from './tools.js';
import { choice, classMark, className, failure, labelled, nodeKey, nodeNumber, nodeWords, relationChoice, scoreText } from './parts.js';
import { createMap } from './map.js';

const PAGE = 50;

export const exploreView = async (main, about) => {
  const now = state();
  const graphs = about.task === 'graph';
  const list = make('div', { class: 'rows', id: 'rows', tabindex: '0', role: 'region', 'aria-label': graphs ? 'Graphs' : 'Nodes' });
  const count = make('p', { class: 'hint', id: 'count' });
  const filters = filterBar(about, now);
  const left = make('section', { class: 'card list-card', 'aria-label': 'Choose' }, filters, count, list);
  let map = null;
  if (graphs) {
    left.classList.add('wide');
    main.replaceChildren(make('div', { class: 'explore gallery' }, left));
  } else {
    map = make('section', { class: 'card map-card', 'aria-label': 'Map of the graph' });
    main.replaceChildren(make('div', { class: 'explore' }, left, map));
  }
  const parameters = {
    q: now.q, type: now.type, class: now.class, predicted: now.predicted, answer: now.answer, model: now.model,
    min_score: now.min, max_score: now.max, sort: now.sort,
  };
  const load = async (offset) => {
    const page = await get(graphs ? 'graphs' : 'nodes', { ...parameters, offset, limit: PAGE });
    const noun = graphs ? 'graph' : 'node';
    count.textContent = page.total === 1 ? `1 ${noun}` : `${page.total.toLocaleString('en')} ${noun}s`;
    if (!offset) list.replaceChildren();
    list.querySelector('.more')?.remove();
    if (!page.total) list.append(make('p', { class: 'hint', text: `No ${noun} matches. Take a filter away.` }));
    list.append(...page.rows.map((row) => (graphs ? tile(about, row) : line(about, row, now))));
    const shown = offset + page.rows.length;
    if (shown < page.total) {
      list.append(make('button', { type: 'button', class: 'more', text: `Show more (${(page.total - shown).toLocaleString('en')})`,
        on: { click: () => load(shown) } }));
    }
  };
  try {
    await load(0);
  } catch (error) {
    left.replaceChildren(filters, failure(error));
  }
  if (map) await drawMap(map, about, now);
};

const pick = (about, id, now) => {
  if (about.task !== 'link') {
    go('why', { [about.task]: nodeKey(about, id) });
  } else if (now.first && nodeNumber(about, now.first) !== id) {
    go('why', { link: `${now.first},${nodeKey(about, id)}`, relation: now.relation });
  } else {
    change({ first: nodeKey(about, id) });
  }
};

const line = (about, row, now) => make('button', {
  type: 'button', class: `line${row.wrong ? ' wrong' : ''}${row.predicted === null && about.task === 'node' ? ' unpredicted' : ''}`, 'data-id': row.id, on: { click: () => pick(about, row.id, now) },
}, make('span', { class: 'name', text: row.name }),
make('span', { class: 'what' }, row.predicted === null ? null : classMark(about, row.predicted),
  document.createTextNode(row.predicted !== null ? className(about, row.predicted) : about.task === 'node' ? 'not predicted' : ''),
  row.wrong ? make('em', { text: `is ${className(about, row.class)}` }) : null),
make('span', { class: 'number', text: row.score === null ? `${row.size} edge${row.size === 1 ? '' : 's'}` : scoreText(about, row.score) }));

const tile = (about, row) => make('button', {
  type: 'button', class: `tile${row.wrong ? ' wrong' : ''}`, 'data-id': row.id, on: { click: () => go('why', { graph: row.id }) },
}, make('img', { src: `api/v1/graphs/${row.id}.svg?theme=${document.documentElement.dataset.theme}`, alt: '', loading: 'lazy', width: 220, height: 150 }),
make('span', { class: 'top' }, make('span', { class: 'name', text: row.name }), make('span', { class: 'size', text: `${row.size} nodes` })),
make('span', { class: 'what' }, classMark(about, row.predicted), make('span', { class: 'class', text: className(about, row.predicted) }),
  make('span', { class: 'number', text: scoreText(about, row.score) })),
row.wrong ? make('em', { text: `is ${className(about, row.class)}` }) : null);

const filterBar = (about, now) => {
  const classes = [['', 'any'], ...about.classes.map((kind, i) => [String(i), kind.name])];
  const set = (name) => (value) => change({ [name]: value || null });
  const search = make('input', { type: 'search', id: 'filter', value: now.q ?? '', placeholder: 'number or name', 'aria-label': 'Number or name' });
  let timer;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ q: search.value || null }, { replace: true }), 250);
  });
  const parts = [labelled('Find', search)];
  if (about.types.length) parts.push(labelled('Type', choice([['', 'any'], ...about.types.map(({ name }) => [name, name])], now.type, set('type'), { id: 'type' })));
  const hasLabels = about.accuracy !== null;
  if (about.task !== 'link') {
    if (about.classes.length) parts.push(labelled('Predicted', choice(classes, now.predicted, set('predicted'))));
    if (hasLabels) {
      parts.push(labelled('Class', choice(classes, now.class, set('class'))));
      parts.push(labelled('Answer', choice([['', 'any'], ['right', 'right'], ['wrong', `wrong (${about.wrong})`]], now.answer, set('answer'))));
    }
    if (about.scale === 'probability') {
      const sure = [['', 'any'], ['0.9-', 'above 90 %'], ['0.6-0.9', '60 – 90 %'], ['-0.6', 'below 60 %']];
      const range = now.min || now.max ? `${now.min ?? ''}-${now.max ?? ''}` : '';
      parts.push(labelled('Confidence', choice(sure, range, (value) => {
        const [min, max] = value.split('-');
        change({ min: min || null, max: max || null });
      })));
    }
    const sorts = [['', 'number'], ['-confidence', 'most confident'], ['confidence', 'least confident'], ['-size', about.task === 'graph' ? 'largest' : 'most neighbours']];
    parts.push(labelled('Sort by', choice(sorts, now.sort, set('sort'))));
  } else {
    const first = now.first ? `From ${nodeWords(about, now.first)} to … pick the other end.` : 'Pick the first end of the link.';
    parts.unshift(make('p', { class: 'hint pick-two', text: first }));
    if (about.relations.length) parts.push(labelled('Relation', relationChoice(about, now.relation, set('relation'))));
  }
  return make('div', { class: 'filters' }, ...parts);
};

const drawMap = async (card, about, now) => {
  if (!about.map) {
    card.append(make('p', { class: 'hint', text: about.live
      ? `Graphs of up to ${about.limits.mapNodes.toLocaleString('en')} nodes and ${about.limits.mapEdges.toLocaleString('en')} edges are drawn; this one is larger. Search for a node, or filter the list.`
      : 'This run is shown without its model and graph. Choose an explanation from the list.' }));
    return;
  }
  card.append(make('p', { class: 'hint loading', text: 'Drawing the graph…' }));
  try {
    const data = await get('map', { model: now.model });
    const link = about.task === 'link';
    const types = about.types.length > 0;
    const by = now.colour || (types ? 'type' : link ? 'class' : 'predicted');
    const colours = [...(types ? [['type', 'type']] : []), ...(link ? [['class', 'class']]
      : [['predicted', 'predicted class'], ...(data.class ? [['class', 'class'], ['wrong', 'right or wrong']] : [])])];
    const legend = make('div', { class: 'legend' });
    const canvas = make('canvas', { id: 'map', tabindex: '0', role: 'img',
      'aria-label': `Map of ${about.count} nodes. The list beside it holds the same nodes.` });
    const tip = make('div', { class: 'tip', hidden: true });
    const map = createMap(canvas, tip, data, about, (id) => pick(about, id, now), now.first ? [nodeNumber(about, now.first)] : []);
    const button = (text, name, act) => make('button', { type: 'button', text, 'aria-label': name, title: name, on: { click: act } });
    const toolbar = make('div', { class: 'toolbar' },
      labelled('Colour by', choice(colours, by, (value) => { change({ colour: value }, { replace: true, quiet: true }); colour(value); })),
      make('div', { class: 'zoom' }, button('+', 'Zoom in', () => map.zoom(1.5)), button('\u2212', 'Zoom out', () => map.zoom(1 / 1.5)), button('Fit', 'Fit the whole graph', map.fit)));
    const colour = (value) => {
      map.colour(value);
      const kinds = (value === 'type' ? about.types : about.classes).map((kind) => [kind.name, kind.colour]);
      const others = about.types.some((kind) => !kind.predicted) ? [['not predicted', 'var(--grey)']] : [];
      const entries = value === 'type' ? kinds : value === 'wrong' ? [['right', 'var(--grey)'], ['wrong', 'var(--for)']] : [...kinds, ...others];
      legend.replaceChildren(...entries.map(([name, ink]) => {
        const mark = make('i', { class: 'swatch' });
        mark.style.background = ink;
        return make('span', {}, mark, document.createTextNode(name));
      }));
    };
    card.replaceChildren(toolbar, make('div', { class: 'stage' }, canvas, tip), legend);
    map.start();
    colour(by);
  } catch (error) {
    card.replaceChildren(failure(error));
  }
};
