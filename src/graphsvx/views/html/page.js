// The page: which explanation, which output, which threshold, which theme.

// The data of many explanations is compressed (zlib, base64).
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).text();
};
const data = byId('data');
const page = JSON.parse(data.type === 'text/plain' ? await unpacked(data.textContent) : data.textContent);
let record = page.explanations[0];
let row = record.target_row;
const graphView = createGraphView({ svg: byId('graph'), tip: byId('tip'), stage: byId('stage') });
byId('zoom-in').addEventListener('click', () => graphView.zoom(1.4));
byId('zoom-out').addEventListener('click', () => graphView.zoom(1 / 1.4));
byId('zoom-fit').addEventListener('click', graphView.fit);

const drawWords = () => {
  const output = record.outputs[row];
  byId('said').textContent = output.title;
  byId('sentences').textContent = output.sentences.replace(/(\d) %/g, '$1\u00a0%');
  byId('facts').replaceChildren(
    fact('Prediction', plain(output.prediction)), fact('Base', plain(output.base)),
    fact('Credit in total', signed(output.total)), fact('Scale', record.scale),
    fact('Credit is', record.certificate.status));
};

const drawDetails = (index) => {
  const card = byId('details');
  markRow(index === null ? null : record.graph.dots[index].id);
  if (index === null) {
    card.replaceChildren(make('p', { class: 'hint',
      text: 'Click a node, or go through the graph with the arrow keys, to see its credit here.' }));
    return;
  }
  const graph = record.graph;
  const dot = graph.dots[index];
  const credit = graph.credit[row][index];
  const total = graph.credit[row].reduce((sum, value) => sum + Math.abs(value ?? 0), 0);
  const facts = [];
  if (dot.plays && dot.count === 1) facts.push(fact('Standard error', errorText(graph.error[row][index])));
  if (dot.plays && total) facts.push(fact('Of the nodes\u2019 absolute credit', percent(Math.abs(credit) / total)));
  if (dot.class !== null) facts.push(fact(record.typed ? 'Type' : 'Class', graph.classes[dot.class].name));
  if (dot.hop) facts.push(fact('Distance', dot.hop === 1 ? '1 hop' : `${dot.hop} hops`));
  if (dot.plays && dot.count === 1 && mayBeZero({ credit, error: graph.error[row][index] })) facts.push(fact('This credit', 'may be 0'));
  const parts = [
    make('h3', { text: dot.count > 1 ? `${dot.count} more nodes together` : graphView.nodeName(dot) }),
    dot.plays
      ? make('div', { class: `big ${side(credit)}-text`, text: signed(credit) })
      : make('p', { class: 'hint', text: dot.centre ? 'The explained node.' : 'Does not play.' }),
    make('dl', { class: 'facts' }, ...facts),
  ];
  if (dot.features && dot.features.length) {
    parts.push(make('h4', { text: 'Its largest features' }), make('dl', { class: 'facts' },
      ...dot.features.map(([name, value]) => fact(name, plain(value)))));
  }
  const features = record.tables.find((table) => table.kind === 'feature');
  if (dot.centre && features) {
    const best = features.rows.map((player, i) => [player.name, features.credit[row][i] ?? 0])
      .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 6);
    parts.push(make('h4', { text: 'Credit of its features' }), make('dl', { class: 'facts' },
      ...best.map(([name, value]) => fact(name, signed(value), `${side(value)}-text`))));
  }
  parts.push(...members(index), ...neighbours(index));
  card.replaceChildren(...parts);
};

// The nodes of a group, those with the most credit first.
const members = (index) => {
  const graph = record.graph;
  const inside = graph.dots[index].count > 1 ? graph.members[index - (graph.dots.length - graph.members.length)] : [];
  if (!inside.length) return [];
  const hidden = graph.dots[index].count - inside.length;
  const lines = inside.map(([id, label, credit, error]) => {
    const quiet = mayBeZero({ credit: credit[row], error: error[row] });
    return make('div', { class: quiet ? 'unsure' : '' }, make('dt', { text: label === String(id) ? `node ${id}` : label }),
      make('dd', { text: signed(credit[row]), class: quiet ? '' : `${side(credit[row])}-text` }));
  });
  return [make('h4', { text: 'Its nodes' }),
    make('dl', { class: 'facts members', tabindex: '0' }, ...lines),
    ...(hidden ? [make('p', { class: 'hint', text: `and ${hidden} more` })] : [])];
};

const neighbours = (index) => {
  const graph = record.graph;
  const adjacent = graph.lines.flatMap(([a, b]) => (a === index ? [b] : b === index ? [a] : []));
  if (!adjacent.length) return [];
  adjacent.sort((a, b) => Math.abs(graph.credit[row][b]) - Math.abs(graph.credit[row][a]));
  const shown = adjacent.slice(0, 24);
  const buttons = shown.map((i) => make('button', {
    type: 'button', text: graph.dots[i].label, title: signed(graph.credit[row][i]),
    on: { click: () => graphView.select(i) },
  }));
  const hidden = adjacent.length - shown.length;
  return [make('h4', { text: `Neighbours (${adjacent.length})` }),
    make('div', { class: 'near' }, ...buttons, hidden ? make('span', { class: 'hint', text: `and ${hidden} more` }) : null)];
};

const markRow = (id) => {
  document.querySelectorAll('[data-table="node"] tbody tr').forEach((line) =>
    line.classList.toggle('selected', line.dataset.key === String(id)));
};

const pickNode = (id) => {
  if (!record.graph) return;
  const index = record.graph.dots.findIndex((dot) => dot.id === id);
  if (index >= 0) graphView.select(index);
};

const cutOff = () => {
  const scale = record.tables.reduce((most, table) => Math.max(most, largest(table.credit[row])), 0);
  return (Number(byId('threshold').value) / 100) * scale;
};

const applyThreshold = () => {
  const least = cutOff();
  if (record.graph) graphView.threshold(least);
  let shown = 0;
  let all = 0;
  document.querySelectorAll('#tables tbody tr[data-credit]').forEach((line) => {
    const below = Math.abs(Number(line.dataset.credit)) < least;
    line.classList.toggle('below', below);
    all += 1;
    shown += below ? 0 : 1;
  });
  byId('threshold-says').textContent = `${plain(least)}: ${shown} of ${all} players`;
};

const drawOutput = () => {
  drawWords();
  drawTables(record, row, pickNode);
  drawCells(record, row);
  drawTogether(record, row);
  drawWaterfall(record, row);
  drawCertificate(record, row);
  byId('graph-card').hidden = !record.graph;
  byId('details').hidden = !record.graph;
  if (record.graph) {
    const selected = graphView.selected();
    graphView.show(record.graph, row, drawDetails);
    drawLegend(byId('legend'), record, byId('graph'));
    if (selected !== null && selected < record.graph.dots.length) graphView.select(selected);
    else drawDetails(null);
  }
  applyThreshold();
};

const options = (select, names, value) => {
  select.replaceChildren(...names.map((text, i) => make('option', { text, value: i })));
  select.value = String(value);
};

const choose = (index) => {
  record = page.explanations[index];
  row = record.target_row;
  byId('switch').hidden = record.outputs.length < 2;
  options(byId('output'), record.outputs.map((output) => output.name), row);
  byId('threshold').value = '0';
  drawOutput();
  // Something to read from the start: the explained node, or the one with the most credit.
  if (record.graph) graphView.select(graphView.first());
};

const several = page.explanations.length > 1;
byId('pick').hidden = !several;
byId('search').hidden = !several;
const titles = page.explanations.map((explanation, i) =>
  `${i + 1}. ${explanation.outputs[explanation.target_row].title}`);
options(byId('which'), titles, 0);
byId('which').addEventListener('change', (event) => choose(Number(event.target.value)));
// Every word that is typed must be in the title; the first match is shown.
byId('find').addEventListener('input', (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = titles.map((title, i) => i).filter((i) => {
    const { outputs, target_row: target } = page.explanations[i];
    const parts = outputs[target].title.toLowerCase().split(/[^\p{L}\p{N}]+/u);
    return words.every((word) => parts.some((part) => part.startsWith(word)));
  });
  const shown = page.explanations.indexOf(record);
  byId('which').replaceChildren(...matching.map((i) => make('option', { text: titles[i], value: i })));
  if (!matching.length) byId('which').replaceChildren(make('option', { text: 'nothing found', disabled: true }));
  else if (matching.includes(shown)) byId('which').value = String(shown);
  else choose(matching[0]);
});
byId('output').addEventListener('change', (event) => { row = Number(event.target.value); drawOutput(); });
byId('threshold').addEventListener('input', applyThreshold);

// Theme: the system's, until the reader chooses. Storage may be forbidden, for instance in a frame.
const stored = (act) => { try { return act(window.localStorage); } catch { return null; } };
const setTheme = (dark) => {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  byId('theme').textContent = dark ? 'Light' : 'Dark';
  byId('theme').setAttribute('aria-pressed', String(dark));
  graphView.readable();
};
const system = window.matchMedia('(prefers-color-scheme: dark)');
const wish = stored((storage) => storage.getItem('graphsvx-theme'));
setTheme(wish ? wish === 'dark' : system.matches);
system.addEventListener('change', (event) => {
  if (!stored((storage) => storage.getItem('graphsvx-theme'))) setTheme(event.matches);
});
byId('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme !== 'dark';
  setTheme(dark);
  stored((storage) => storage.setItem('graphsvx-theme', dark ? 'dark' : 'light'));
});

choose(0);

// In a notebook, tell the frame how tall the page is.
if (window.parent !== window) {
  const tell = () => window.parent.postMessage({ graphsvxHeight: Math.ceil(document.body.getBoundingClientRect().height) }, '*');
  new ResizeObserver(tell).observe(document.body);
  tell();
}
