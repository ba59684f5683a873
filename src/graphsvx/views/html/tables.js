// Legend, waterfall, tables and certificate.
import { byId, CORNERS, cornersOf, errorText, fact, largest, make, mayBeZero, minus, plain, shortened, side, signed } from './tools.js';

const STEPS = 12;
const ANSWERS = { sufficient: 'enough alone', flip: 'without these, another class' };

// What colours, shapes and lines of the graph mean.
export const drawLegend = (legend, record, svg) => {
  const entry = (mark, text) => make('span', {}, mark, document.createTextNode(text));
  const parts = [];
  if (record.graph.dots.some((dot) => dot.centre)) parts.push(entry(make('i', { class: 'swatch ring' }), 'explained'));
  Object.entries(record.graph.classes).forEach(([number, kind]) => {
    const mark = make('i', { class: 'swatch' });
    mark.style.background = kind.colour;
    const corners = record.typed ? CORNERS[Number(number) % CORNERS.length] : null;
    if (corners) {
      mark.style.borderRadius = '0';
      mark.style.clipPath = `polygon(${cornersOf(corners, 36).map(([x, y]) => `${50 + x}% ${50 + y}%`).join(', ')})`;
    }
    parts.push(entry(mark, kind.name));
  });
  if (svg.querySelector('.link.bold')) parts.push(entry(make('i', { class: 'swatch bar' }), 'important part'));
  const questions = (record.graph.sets ?? []).filter((set) => set.dots.length).map((set) => set.question);
  Object.entries(ANSWERS).filter(([question]) => questions.includes(question)).forEach(([question, text]) =>
    parts.push(entry(make('i', { class: `swatch ${question}` }), text)));
  parts.push(entry(make('i', { class: 'ramp' }), 'against \u2013 for'));
  legend.replaceChildren(...parts);
};

export const drawWaterfall = (record, row) => {
  const output = record.outputs[row];
  const every = record.tables.flatMap((table) =>
    table.rows.map((player, i) => ({ name: player.name, credit: table.credit[row][i] ?? 0, error: table.error[row][i] })));
  every.sort((a, b) => Math.abs(b.credit) - Math.abs(a.credit));
  // Players that may be 0 are summed, not listed.
  const certain = every.filter((step) => !mayBeZero(step));
  const steps = certain.slice(0, STEPS);
  const rest = [...certain.slice(STEPS), ...every.filter(mayBeZero)];
  const unlisted = record.tables.reduce((sum, table) => sum + table.more.count, 0);
  const more = rest.length + unlisted;
  if (more) {
    const credit = rest.reduce((sum, step) => sum + step.credit, 0) +
      record.tables.reduce((sum, table) => sum + (table.more.credit[row] ?? 0), 0);
    steps.push({ name: `${more} more together`, credit });
  }
  const gap = output.prediction - output.base - output.total;
  if (!output.addsUp) steps.push({ name: 'not accounted for', credit: gap, open: true });
  let level = output.base;
  const stops = [level];
  steps.forEach((step) => { step.from = level; level += step.credit; stops.push(level); });
  const low = Math.min(0, ...stops, output.prediction);
  const high = Math.max(0, ...stops, output.prediction);
  const at = (value) => `${(100 * (value - low)) / (high - low || 1)}%`;
  const bar = (from, to, kind) => {
    const element = make('div', { class: `bar ${kind}` });
    element.style.left = at(Math.min(from, to));
    element.style.width = `calc(${at(Math.max(from, to))} - ${at(Math.min(from, to))})`;
    return element;
  };
  const join = (value) => {
    const element = make('div', { class: 'join' });
    element.style.left = at(value);
    return element;
  };
  const line = (name, value, kind, ...marks) => make('div', { class: `step ${kind}`, role: 'listitem' },
    make('div', { class: 'name', text: shortened(name), title: name }),
    make('div', { class: 'track' }, ...marks),
    make('div', { class: 'value', text: value }));
  byId('waterfall').replaceChildren(
    line('base', plain(output.base), 'end', bar(0, output.base, ''), join(output.base)),
    ...steps.map((step) => line(step.name, signed(step.credit), '',
      bar(step.from, step.from + step.credit, step.open ? '' : side(step.credit)), join(step.from + step.credit))),
    line('prediction', plain(output.prediction), 'end', bar(0, output.prediction, '')));
};

const HEADINGS = { node: 'Nodes', feature: 'Features', edge: 'Edges' };

export const drawTables = (record, row, onPick) => {
  const scale = record.tables.reduce((most, table) => Math.max(most, largest(table.credit[row])), 0);
  const cards = record.tables.map((table) => tableCard(record, table, row, scale, onPick));
  byId('tables').replaceChildren(...cards);
};

const tableCard = (record, table, row, scale, onPick) => {
  const classes = record.graph ? record.graph.classes : {};
  const estimated = table.error[row].some((error) => error !== 0);
  const groups = table.groups ?? [];
  const reach = Math.max(scale, ...table.credit[row].map((credit, i) =>
    Math.abs(credit ?? 0) + 1.96 * (table.error[row][i] ?? 0)), ...groups.map((group) => Math.abs(group.credit[row] ?? 0)));
  const withClass = table.rows.some((player) => player.class !== undefined && player.class !== null);
  const columns = [{ key: 'name', title: HEADINGS[table.kind].slice(0, -1), text: true }];
  if (withClass) columns.push({ key: 'class', title: record.typed ? 'Type' : 'Class' });
  if (table.kind === 'node' && record.kind === 'node') columns.push({ key: 'hop', title: 'Hops' });
  columns.push({ key: 'credit', title: 'Credit' });
  if (estimated) columns.push({ key: 'error', title: '\u00b1 s.e.' });
  const players = table.rows.map((player, i) =>
    ({ ...player, credit: table.credit[row][i], error: table.error[row][i] }));
  const body = make('tbody');
  const cell = (player, column) => {
    if (column.key === 'name') return make('td', { class: 'name', text: player.name });
    if (column.key === 'class') {
      const kind = classes[player.class];
      if (!kind) return make('td');
      const mark = make('span', { class: 'dot-class' });
      mark.style.background = kind.colour;
      return make('td', {}, mark, document.createTextNode(kind.name));
    }
    if (column.key === 'hop') return make('td', { class: 'number hop', text: player.hop ?? '' });
    if (column.key === 'error') return make('td', { class: 'number', text: errorText(player.error) });
    return make('td', { class: `number ${side(player.credit)}-text`, text: signed(player.credit) });
  };
  const rows = players.map((player) => {
    const pick = table.kind === 'node' ? () => onPick(player.id) : null;
    const line = make('tr', {
      'data-key': String(player.id), 'data-credit': player.credit,
      class: [pick ? 'link-row' : '', mayBeZero(player) ? 'unsure' : ''].join(' ').trim(),
      on: pick ? { click: pick } : {},
    }, ...columns.map((column) => cell(player, column)),
      make('td', { class: 'bars' }, creditBar(player, reach)));
    return { player, line };
  });
  const value = (player, key) => (key === 'credit' ? player.credit ?? 0 : player[key] ?? -1);
  // By absolute credit at first, like everywhere else on the page.
  let order = (a, b) => Math.abs(b.player.credit ?? 0) - Math.abs(a.player.credit ?? 0);
  // Groups and players that may be 0 are folded: a row with a button that shows and hides the rows below it.
  const parts = sections(table, row, rows);
  const fill = () => body.replaceChildren(...parts.flatMap((part) => partRows(part, 0, true)));
  const partRows = (part, depth, visible) => {
    if (part.name) {
      part.line ??= groupRow(part, depth);
      part.line.hidden = !visible;
    }
    const open = visible && (!part.name || part.open);
    const lines = [...part.rows].sort(order).map((entry) => entry.line);
    lines.forEach((line) => { line.hidden = !open; });
    const below = part.parts.flatMap((inner) => partRows(inner, depth + 1, open));
    return [...(part.name ? [part.line] : []), ...lines, ...below];
  };
  const groupRow = (part, depth) => {
    const button = make('button', { type: 'button', class: 'fold', 'aria-expanded': 'false', text: part.name, on: { click: () => {
      part.open = !part.open;
      button.setAttribute('aria-expanded', String(part.open));
      fill();
      button.focus();
    } } });
    const player = { credit: part.credit, error: part.error };
    const quiet = part.quiet || mayBeZero(player);
    const cells = columns.map((column) => {
      if (column.key === 'name') return make('td', { class: 'name' }, button);
      if (column.key === 'credit') return make('td', { class: `number ${quiet ? '' : `${side(part.credit)}-text`}`, text: signed(part.credit) });
      if (column.key === 'error') return make('td', { class: 'number', text: part.error === null ? '' : errorText(part.error) });
      return make('td', { class: column.key });
    });
    return make('tr', { class: `group depth-${depth}${quiet ? ' unsure' : ''}` }, ...cells,
      make('td', { class: 'bars' }, creditBar(player, reach)));
  };
  const sortBy = (key, upward) => {
    order = (a, b) => {
      const [x, y] = [value(a.player, key), value(b.player, key)];
      const before = typeof x === 'string' ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return upward ? before : -before;
    };
    fill();
  };
  const heads = columns.map((column) => {
    const head = make('th', { scope: 'col', class: column.text || column.key === 'class' ? '' : `number ${column.key}` });
    head.append(make('button', { type: 'button', text: column.title, on: { click: () => {
      const upward = head.getAttribute('aria-sort') === 'descending' || (!head.hasAttribute('aria-sort') && column.text);
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', upward ? 'ascending' : 'descending');
      sortBy(column.key, upward);
    } } }));
    return head;
  });
  fill();
  const note = estimated ? '95 % interval' : '';
  const foot = table.more.count
    ? make('tfoot', {}, make('tr', {}, make('td', { colspan: columns.length + 1, class: 'hint',
      text: `${table.more.count} more together ${signed(table.more.credit[row])}` })))
    : null;
  return make('section', { class: 'card long wide', 'data-table': table.kind },
    make('h2', { text: `${HEADINGS[table.kind]} (${table.rows.length + table.more.count})` }),
    make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${HEADINGS[table.kind]} with credit` },
      make('table', {}, make('thead', {}, make('tr', {}, ...heads, note ? make('th', { scope: 'col', text: note }) : make('td'))), body, foot)));
};

// Parts of a table that are folded: groups of players, and in each those that may be 0.
const FEW_UNSURE = 3;
const sections = (table, row, rows) => {
  const split = (entries, name) => {
    const unsure = entries.filter((entry) => mayBeZero(entry.player));
    if (unsure.length < FEW_UNSURE) return { rows: entries, parts: [] };
    const credit = unsure.reduce((sum, entry) => sum + (entry.player.credit ?? 0), 0);
    const words = `${unsure.length} that may be 0${name}`;
    return { rows: entries.filter((entry) => !mayBeZero(entry.player)),
      parts: [{ name: words, credit, error: null, quiet: true, rows: unsure, parts: [] }] };
  };
  if (!table.groups || !table.groups.length) return [split(rows, '')];
  return table.groups.map((group) => ({
    name: group.name, credit: group.credit[row], error: group.error[row],
    ...split(group.rows.map((i) => rows[i]), ` of ${group.name}`),
  }));
};

// Features of nodes: a matrix, coloured by credit.
export const drawCells = (record, row) => {
  const card = byId('cells');
  card.hidden = !record.cells;
  if (!record.cells) return;
  const cells = record.cells[row];
  const square = (value, error) => {
    if (value === null) return make('td', { class: 'cell' });
    const quiet = mayBeZero({ credit: value, error });
    const share = Math.min(1, Math.abs(value) / cells.largest);
    const element = make('td', { class: 'cell', title: `${signed(value)}${error ? ` \u00b1 ${plain(error)}` : ''}`,
      text: quiet || share < 0.1 ? '' : signed(value) });
    const strength = Math.round((quiet ? 0.15 : 1) * share * 100);
    element.style.background = `color-mix(in srgb, var(--${side(value)}) ${strength}%, var(--node))`;
    if (strength > 55) element.classList.add('strong');
    return element;
  };
  byId('cell-table').replaceChildren(
    make('thead', {}, make('tr', {}, make('td'), ...cells.columns.map((text) => make('th', { scope: 'col', text })))),
    make('tbody', {}, ...cells.rows.map((name, i) => make('tr', {}, make('th', { scope: 'row', text: name }),
      ...cells.credit[i].map((value, j) => square(value, cells.error[i][j]))))));
};

// Pairs of players that add more, or less, together than each by itself.
export const drawTogether = (record, row) => {
  const { index, pairs } = record.together?.[row] ?? { pairs: [] };
  byId('together').hidden = !pairs.length;
  byId('together-title').textContent = `Together (${index})`;
  const reach = Math.max(...pairs.map((pair) => Math.abs(pair.value)));
  byId('together-table').replaceChildren(make('tbody', {}, ...pairs.map(({ name, value, error }) =>
    make('tr', {}, make('th', { scope: 'row', text: name }),
      make('td', { class: `number ${side(value)}`, text: signed(value) }),
      make('td', { class: 'number error', text: error ? `\u00b1 ${plain(error)}` : '' }),
      make('td', { class: 'bars' }, creditBar({ credit: value, error }, reach))))));
};

export const creditBar = (player, reach) => {
  const bar = make('div', { class: 'credit-bar', 'aria-hidden': 'true' });
  const credit = player.credit ?? 0;
  const half = (size) => (reach ? (50 * size) / reach : 0);
  const ink = make('i', { class: side(credit) });
  ink.style.left = `${credit < 0 ? 50 - half(-credit) : 50}%`;
  ink.style.width = `${half(Math.abs(credit))}%`;
  bar.append(ink);
  if (player.error) {
    const whisker = make('b');
    whisker.style.left = `${50 + half(credit - 1.96 * player.error)}%`;
    whisker.style.width = `${2 * half(1.96 * player.error)}%`;
    bar.append(whisker);
  }
  return bar;
};

export const drawCertificate = (record, row) => {
  const certificate = record.certificate;
  byId('certificate-line').textContent = record.meaning;
  const titles = ['Game', 'Players', 'How', 'Model calls', 'Allowed', 'Coalitions', 'R\u00b2', 'Masks'];
  byId('games').hidden = certificate.games.length === 0;
  byId('games').replaceChildren(
    make('thead', {}, make('tr', {}, ...titles.map((text) => make('th', { scope: 'col', text })))),
    make('tbody', {}, ...certificate.games.map((game) => make('tr', {}, ...[
      game.name, game.players, game.status, game.calls, game.budget, game.coalitions,
      plain(game.r2), game.mask,
    ].map((text) => make('td', { text }))))));
  byId('certificate-facts').replaceChildren(
    fact('Method', record.method),
    fact('Left over', certificate.residual === null ? '\u2013' : minus(certificate.residual.toExponential(1))),
    fact('Seed', certificate.seed),
    fact('Model depth', certificate.depth === null ? 'whole graph' : `${certificate.depth}`),
    ...(certificate.checks.length ? [fact('Checked', certificate.checks.join(', '))] : []),
    ...(certificate.fallback ? [fact('Fallback', certificate.fallback)] : []),
    ...(certificate.tolerance_met === null ? [] : [fact('Tolerance', certificate.tolerance_met ? 'met' : 'NOT met')]));
  byId('account').textContent = record.outputs[row].account;
};
