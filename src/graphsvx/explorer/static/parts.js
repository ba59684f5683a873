// Parts that several views share: bars of classes, lists, empty states, exports.
import { make } from './tools.js';

export const percentage = (score) => `${(100 * score).toFixed(score > 0.0995 && score < 0.9995 ? 0 : 1)} %`;

export const scoreText = (about, score) => {
  if (score === null || score === undefined) return '';
  return about.scale === 'probability' ? percentage(score) : score.toFixed(3).replace('-', '\u2212');
};

export const className = (about, number) => {
  if (number === null || number === undefined) return '';
  return about.classes[number] ? about.classes[number].name : `class ${number}`;
};

// Nodes of typed graphs are numbered through all types; in addresses they are TYPE:ID.
const typeOf = (about, number) => about.types.find((type) => number < type.start + type.count);

export const nodeKey = (about, number) => {
  if (!about.types.length) return String(number);
  const type = typeOf(about, number);
  return `${type.name}:${number - type.start}`;
};

export const nodeNumber = (about, key) => {
  const colon = key.lastIndexOf(':');
  const type = about.types.find((entry) => entry.name === key.slice(0, colon));
  return type ? type.start + Number(key.slice(colon + 1)) : Number(key);
};

// A node in words, from its number or its key.
export const nodeWords = (about, node) => {
  if (!about.types.length) return `node ${node}`;
  return (String(node).includes(':') ? String(node) : nodeKey(about, Number(node))).replace(/:(?=\d+$)/, ' ');
};

export const linkWords = (about, link) => link.split(',').map((end) => nodeWords(about, end).replace(/^node /, '')).join(' \u2013 ');

// Whether the model has an output for this node.
export const isPredicted = (about, number) => !about.types.length || typeOf(about, number).predicted;

export const outputName = (about, number) => about.outputs[number] ?? `class ${number}`;

export const classMark = (about, number) => {
  const mark = make('span', { class: 'dot-class' });
  if (about.classes[number]) mark.style.background = about.classes[number].colour;
  return mark;
};

export const empty = (title, text, ...more) =>
  make('section', { class: 'card empty' }, make('h2', { text: title }), make('p', { text }), ...more);

export const failure = (error, ...more) => {
  const section = empty('That did not work', error.message, ...more);
  section.setAttribute('role', 'alert');
  section.classList.add('failed');
  return section;
};

export const command = (text) => make('pre', { class: 'command', text });

// The questions of the address, as parameters of the interface.
export const questionOf = (about, state) => {
  const names = ['node', 'graph', 'link', 'relation', 'model', 'method', 'players', 'samples', 'order', 'target', 'rather_than', 'source'];
  return Object.fromEntries(names.filter((name) => state[name]).map((name) => [name, state[name]]));
};

export const hasQuestion = (state) => ['node', 'graph', 'link'].some((name) => state[name]);

export const whichOf = (state) => Object.fromEntries(
  ['node', 'graph', 'link', 'relation'].filter((name) => state[name]).map((name) => [name, state[name]]));

export const labelled = (text, control, extra = '') => make('label', { class: `field ${extra}` }, make('span', { text }), control);

export const choice = (entries, chosen, onChange, options = {}) => {
  const select = make('select', { ...options, on: { change: (event) => onChange(event.target.value) } },
    ...entries.map(([value, text]) => make('option', { value, text })));
  select.value = chosen ?? '';
  return select;
};

export const relationChoice = (about, chosen, onChange) => choice([['', 'any'], ...about.relations.map((name, i) => [String(i), name])], chosen, onChange, { id: 'relation' });

// Saves what the graph shows: the style sheet does not go along, so each element gets its own style.
const STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity', 'font-size', 'font-family',
  'text-anchor', 'dominant-baseline', 'display', 'paint-order'];

const standalone = (svg) => {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll('*')];
  const to = [copy, ...copy.querySelectorAll('*')];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    STYLES.forEach((name) => to[i].setAttribute(name, style.getPropertyValue(name)));
    to[i].removeAttribute('class');
    to[i].removeAttribute('style');
  });
  copy.querySelectorAll('[display="none"], [stroke="rgba(0, 0, 0, 0)"]').forEach((element) => element.remove());
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  const [, , w, h] = svg.getAttribute('viewBox').split(' ');
  const ground = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  ground.setAttribute('width', w);
  ground.setAttribute('height', h);
  ground.setAttribute('fill', getComputedStyle(svg.closest('.card')).backgroundColor);
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
};

const save = (blob, name) => {
  const link = make('a', { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

export const saveSvg = (svg, name) => save(new Blob([standalone(svg).text], { type: 'image/svg+xml' }), `${name}.svg`);

export const savePng = async (svg, name) => {
  const { text, width, height } = standalone(svg);
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = make('canvas', { width: 2 * width, height: 2 * height });
  canvas.getContext('2d').drawImage(image, 0, 0, 2 * width, 2 * height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => save(blob, `${name}.png`));
};

// The graph with its tooltip and buttons; `extra` goes into its toolbar.
export const graphCard = (createGraphView, draw, label, ...extra) => {
  const svg = draw('svg', { class: 'graph', role: 'group', 'aria-label': `${label}. Arrow keys go from node to node by credit, Enter selects, plus and minus zoom.` });
  const tip = make('div', { class: 'tip', role: 'tooltip', hidden: true });
  const stage = make('div', { class: 'stage' }, svg, tip);
  const view = createGraphView({ svg, tip, stage });
  const button = (text, name, act) => make('button', { type: 'button', text, 'aria-label': name, title: name, on: { click: act } });
  const card = make('section', { class: 'card graph-card', 'aria-label': label },
    make('div', { class: 'toolbar' }, make('div', { class: 'slider' }, ...extra),
      make('div', { class: 'zoom', role: 'group', 'aria-label': 'Zoom' },
        button('+', 'Zoom in', () => view.zoom(1.4)), button('\u2212', 'Zoom out', () => view.zoom(1 / 1.4)),
        button('Fit', 'Fit the whole graph', view.fit))),
    stage);
  return { card, svg, view };
};

export const exportMenu = (name, svg, links) => {
  const item = (text, act) => make('button', { type: 'button', text, on: { click: act } });
  return make('details', { class: 'menu' }, make('summary', { text: 'Export' }),
    make('div', {},
      item('PNG picture', () => savePng(svg, name)), item('SVG picture', () => saveSvg(svg, name)),
      ...links.map(([text, href]) => make('a', { href, download: '', text }))));
};

// Bars of all classes; a click chooses the class, the second button asks "rather than this one".
export const classBars = (about, scores, { before = null, chosen = null, against = null, onChoose = null, onAgainst = null } = {}) => {
  const low = Math.min(0, ...scores, ...(before ?? []));
  const high = about.scale === 'probability' ? 1 : Math.max(1e-9, ...scores, ...(before ?? []));
  const at = (value) => `${(100 * (value - low)) / (high - low)}%`;
  const order = scores.map((score, i) => i).sort((a, b) => (before ?? scores)[b] - (before ?? scores)[a]);
  return make('ul', { class: 'class-bars' }, ...order.slice(0, 24).map((i) => {
    const fill = make('i', { class: 'fill' });
    fill.style.width = at(scores[i]);
    if (about.classes[i]) fill.style.background = about.classes[i].colour;
    const marks = [fill];
    if (before) {
      const tick = make('b', { class: 'tick' });
      tick.style.left = at(before[i]);
      marks.push(tick);
    }
    const moved = before ? scores[i] - before[i] : 0;
    const parts = [
      make('span', { class: 'name', text: outputName(about, i) }),
      make('span', { class: 'track' }, ...marks),
      make('span', { class: 'number', text: scoreText(about, scores[i]) }),
    ];
    if (before) {
      const text = Math.abs(moved) < 0.0005 ? '' : `${moved > 0 ? '+' : '\u2212'}${Math.abs(100 * moved).toFixed(1)}`;
      parts.push(make('span', { class: `number moved ${moved >= 0 ? 'for' : 'against'}-text`, text }));
    }
    const row = onChoose
      ? make('button', { type: 'button', class: 'row', 'aria-pressed': String(i === chosen), 'data-class': i,
        title: `Why ${outputName(about, i)}?`, on: { click: () => onChoose(i) } }, ...parts)
      : make('div', { class: 'row', 'data-class': i }, ...parts);
    const other = onAgainst && i !== chosen
      ? make('button', { type: 'button', class: 'against', 'aria-pressed': String(i === against), 'data-against': i,
        title: `Why not ${outputName(about, i)}?`, 'aria-label': `vs ${outputName(about, i)}`, text: 'vs',
        on: { click: () => onAgainst(i === against ? null : i) } })
      : onAgainst ? make('span', { class: 'against-space' }) : null;
    return make('li', { class: i === chosen ? 'chosen' : i === against ? 'contrast' : '' }, row, other);
  }));
};
