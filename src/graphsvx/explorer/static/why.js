// The Why view: credit for and against the prediction; estimates are refined while it is open.
import { address, get, stream } from './api.js';
import { change, go, state } from './state.js';
import { byId, draw, errorText, fact, largest, make, percent, plain, side, signed } from './tools.js';
import { createGraphView } from './graph.js';
import { drawCertificate, drawLegend, drawTables, drawWaterfall } from './tables.js';
import { choice, classBars, empty, exportMenu, failure, graphCard, hasQuestion, isPredicted, labelled, nodeKey, nodeNumber, nodeWords, questionOf, relationChoice, whichOf } from './parts.js';

let stopStream = () => {};

export const leaveWhy = () => stopStream();
export const stopRefining = () => byId('stop')?.click();

export const whyView = async (main, about) => {
  const now = state();
  if (!hasQuestion(now)) {
    main.replaceChildren(nothingChosen(about));
    return;
  }
  if (now.node && about.types.length && about.live && !isPredicted(about, nodeNumber(about, now.node))) {
    main.replaceChildren(notPredicted(about, now.node));
    return;
  }
  const question = questionOf(about, now);
  if (about.run && !now.source && !about.live) question.source = 'run';
  const page = skeleton(about, now, question);
  main.replaceChildren(page.root);
  const started = performance.now();
  let first = true;
  const show = (record) => {
    page.show(record);
    if (first) {
      first = false;
      performance.measure('credit', { start: started });
    }
  };
  const fail = (error) => main.replaceChildren(failure(error, openGraph()));
  const stored = question.source === 'run' || !about.live;
  if (about.live) get('predict', whichOf(now).link || !stored ? { ...whichOf(now), model: now.model } : whichOf(now)).then(page.classes, () => {});
  if (stored || (question.method && question.method !== 'graphsvx')) {
    page.working('Computing…');
    try {
      show(await get('explain/page', question));
    } catch (error) {
      fail(error);
    }
    return;
  }
  page.working('First estimate…');
  stopStream = stream(question, show, fail);
  page.onStop(() => { stopStream(); });
};

export const nothingChosen = (about) => {
  const noun = { node: 'node', graph: 'graph', link: 'link' }[about.task];
  return empty(`Choose a ${noun}`, about.task === 'link'
    ? 'Pick the two ends of a link in the Graph view.'
    : `Pick a ${noun} in the Graph view, search for its number, or press n for the next wrong prediction.`,
  openGraph());
};

export const notPredicted = (about, node) => {
  const names = about.types.filter((type) => type.predicted).map((type) => type.name).join(', ');
  return empty(`The model does not predict ${nodeWords(about, node)}`,
    `Its outputs are for nodes of type ${names}. Choose one of these; other nodes are players of their explanations.`, openGraph());
};

export const openGraph = () => make('button', { type: 'button', class: 'primary', text: 'Open the Graph view', on: { click: () => go('graph') } });

const skeleton = (about, now, question) => {
  const root = make('div', { class: 'why' });
  const words = make('section', { class: 'card', id: 'words', tabindex: '-1', 'aria-labelledby': 'said' },
    make('h2', { id: 'said' }), make('p', { id: 'sentences' }));
  const status = make('div', { id: 'progress', class: 'progress', role: 'status' });
  const classes = make('section', { class: 'card', id: 'classes', 'aria-label': 'Classes' },
    make('h2', { text: about.scale === 'value' ? 'Outputs' : 'Prediction' }));
  const slider = make('input', { id: 'threshold', type: 'range', min: 0, max: 100, value: 0, step: 1, 'aria-describedby': 'threshold-says' });
  const { card, svg, view } = graphCard(createGraphView, draw, 'Explanation graph',
    make('label', { for: 'threshold', text: 'Credit from' }), slider, make('output', { id: 'threshold-says', for: 'threshold' }));
  svg.id = 'graph';
  const legend = make('div', { class: 'legend', id: 'legend' });
  card.append(legend);
  const details = make('section', { class: 'card', id: 'details', 'aria-live': 'polite', 'aria-label': 'Selected node' });
  const waterfall = make('section', { class: 'card', id: 'waterfall-card', 'aria-labelledby': 'waterfall-title' },
    make('h2', { id: 'waterfall-title', text: 'From base to prediction' }), make('div', { id: 'waterfall', role: 'list' }));
  const groups = make('section', { class: 'card', id: 'groups', 'aria-label': 'Credit of groups', hidden: true });
  const tables = make('div', { id: 'tables' });
  const certificate = make('section', { class: 'card', id: 'certificate', 'aria-labelledby': 'certificate-title' },
    make('h2', { id: 'certificate-title', text: 'Certificate' }), make('p', { id: 'certificate-line' }),
    make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Games' }, make('table', { id: 'games' })), make('dl', { class: 'facts', id: 'certificate-facts' }),
    make('details', {}, make('summary', { text: 'The complete account' }), make('pre', { id: 'account' })));
  const name = Object.entries(whichOf(now)).map(([key, value]) => `${key}-${value}`).join('-').replace(/[^\p{L}\p{N}]+/gu, '-');
  const parameters = { ...question };
  const links = [['JSON', address('explain', parameters)], ['Page in one file', address('explain/html', parameters)]];
  const controls = settings(about, now);
  controls.append(make('div', { class: 'actions' }, exportMenu(name, svg, links),
    about.live ? make('button', { type: 'button', text: 'What if …', on: { click: () => change({ view: 'what-if', target: null, rather_than: null, method: null, players: null, samples: null, order: null }) } }) : null));
  words.prepend(controls);
  words.append(status);
  root.append(words, card, make('div', { class: 'side' }, classes, details), waterfall, groups, tables, certificate);

  let record = null, row = 0, stop = () => {};
  const fade = () => {
    if (!record) return;
    const scale = record.tables.reduce((most, table) => Math.max(most, largest(table.credit[row])), 0);
    const least = (Number(slider.value) / 100) * scale;
    if (record.graph) view.threshold(least);
    let shown = 0, all = 0;
    document.querySelectorAll('#tables tbody tr[data-credit]').forEach((line) => {
      const below = Math.abs(Number(line.dataset.credit)) < least;
      line.classList.toggle('below', below);
      all += 1;
      shown += below ? 0 : 1;
    });
    byId('threshold-says').textContent = `${plain(least)}: ${shown} of ${all}`;
  };
  slider.addEventListener('input', fade);

  const showDetails = (index) => {
    const graph = record.graph;
    document.querySelectorAll('[data-table="node"] tbody tr').forEach((line) =>
      line.classList.toggle('selected', index !== null && line.dataset.key === String(graph.dots[index].id)));
    if (index === null) {
      details.replaceChildren(make('p', { class: 'hint', text: 'Click a node to see its credit here.' }));
      return;
    }
    const dot = graph.dots[index];
    const credit = graph.credit[row][index];
    const total = graph.credit[row].reduce((sum, value) => sum + Math.abs(value ?? 0), 0);
    const facts = [];
    if (dot.plays && dot.count === 1) facts.push(fact('Standard error', errorText(graph.error[row][index])));
    if (dot.plays && total) facts.push(fact('Share', percent(Math.abs(credit) / total)));
    if (dot.class !== null) facts.push(fact(record.typed ? 'Type' : 'Class', graph.classes[dot.class].name));
    if (dot.hop) facts.push(fact('Distance', dot.hop === 1 ? '1 hop' : `${dot.hop} hops`));
    details.replaceChildren(
      make('h3', { text: dot.count > 1 ? `${dot.count} more nodes together` : view.nodeName(dot) }),
      dot.plays ? make('div', { class: `big ${side(credit)}-text`, text: signed(credit) })
        : make('p', { class: 'hint', text: dot.centre ? 'The explained node.' : 'Does not play.' }),
      make('dl', { class: 'facts' }, ...facts),
      ...(dot.features?.length ? [make('h4', { text: 'Its largest features' }),
        make('dl', { class: 'facts' }, ...dot.features.map(([text, value]) => fact(text, plain(value))))] : []),
      ...(about.task === 'node' && about.live && !dot.centre && dot.count === 1 && isPredicted(about, dot.id)
        ? [make('button', { type: 'button', text: `Explain ${view.nodeName(dot)}`, on: { click: () => go('why', { node: nodeKey(about, dot.id) }) } })] : []));
  };

  const pickNode = (id) => {
    const index = record.graph ? record.graph.dots.findIndex((dot) => dot.id === id) : -1;
    if (index >= 0) view.select(index);
  };

  const show = (newRecord) => {
    const before = record;
    record = newRecord;
    row = record.target_row;
    const output = record.outputs[row];
    byId('said').textContent = output.title;
    byId('sentences').textContent = output.sentences.replace(/(\d) %/g, '$1\u00a0%');
    drawTables(record, row, pickNode);
    drawWaterfall(record, row);
    drawCertificate(record, row);
    card.hidden = !record.graph;
    details.hidden = !record.graph;
    if (record.graph) {
      const selected = before ? view.selected() : null;
      if (before?.graph?.placed && before.graph.dots.length === record.graph.dots.length) {
        record.graph.dots.forEach((dot, i) => { [dot.x, dot.y] = [before.graph.dots[i].x, before.graph.dots[i].y]; });
        record.graph.placed = true;
        record.graph.size = before.graph.size;
      }
      view.show(record.graph, row, showDetails);
      drawLegend(legend, record, svg);
      view.select(selected ?? view.first());
    }
    drawGroups(groups, record, row);
    showProgress(record.progress, record.final !== false);
    fade();
    root.dataset.state = record.final === false ? 'refining' : 'done';
  };

  const showProgress = (progress, final) => {
    const sampled = progress.status === 'estimated';
    const error = progress.relativeError;
    const parts = [];
    if (!sampled) parts.push(make('span', { class: 'badge exact', text: progress.status }));
    else if (error !== null) {
      const met = error <= about.limits.tolerance;
      const meter = make('span', { class: 'meter', 'aria-hidden': 'true' });
      const fill = make('i');
      const share = Math.min(1, Math.max(0.04, 1 - Math.log(Math.max(error, about.limits.tolerance) / about.limits.tolerance) / Math.log(200)));
      fill.style.width = `${100 * share}%`;
      meter.append(fill);
      parts.push(meter, make('span', { id: 'error-says', text: `± ${(100 * error).toFixed(error < 0.1 ? 1 : 0)} % of the credit`, 'data-error': error }),
        ...(met ? [make('span', { class: 'badge exact', text: 'tolerance met' })] : []));
    }
    parts.push(make('span', { class: 'hint', text: `${progress.calls.toLocaleString('en')} model calls` }));
    if (!final) {
      parts.push(make('button', { type: 'button', id: 'stop', text: 'Stop', on: { click: () => {
        stop();
        showProgress(progress, true);
        root.dataset.state = 'stopped';
      } } }));
    }
    status.replaceChildren(...parts);
  };

  return {
    root,
    show,
    working: (text) => status.replaceChildren(make('span', { class: 'hint loading', text })),
    onStop: (act) => { stop = act; },
    classes: (answer) => {
      const target = now.target ? Number(now.target) : answer.predicted;
      const against = now.rather_than ? Number(now.rather_than) : null;
      const many = answer.scores.length > 1;
      classes.replaceChildren(make('h2', { text: about.scale === 'value' ? 'Outputs' : 'Prediction' }),
        classBars(about, answer.scores, {
          chosen: target, against,
          onChoose: many ? (i) => change({ target: i, rather_than: i === against ? null : now.rather_than }) : null,
          onAgainst: many && about.scale !== 'value' ? (i) => change({ target, rather_than: i }) : null,
        }),
        ...(answer.class === null ? [] : [make('p', { class: answer.wrong ? 'verdict wrong' : 'verdict', text: answer.wrong
          ? `Wrong: it is ${about.classes[answer.class]?.name ?? answer.class}.` : 'The prediction is right.' })]));
    },
  };
};

const settings = (about, now) => {
  const bar = make('div', { class: 'settings' });
  if (!about.live) return bar;
  const methods = about.methods.map((name) => [name === 'graphsvx' ? '' : name, name]);
  const plays = [['', about.task === 'graph' ? 'nodes' : 'nodes and features'], ['edges', 'edges'], ['features', 'features'],
    ...(about.task === 'graph' ? [] : [['nodes', 'nodes']]), ...(about.typed ? [['relations', 'relations']] : [])];
  const budgets = [['', 'until ± 1 %'], ['100', '100 calls'], ['1000', '1,000 calls'], ['10000', '10,000 calls']]
    .filter(([value]) => Number(value) <= about.limits.samples);
  bar.append(labelled('Method', choice(methods, now.method, (value) => change({ method: value || null, players: null, samples: null, order: null }))));
  if (!now.method || now.method === 'graphsvx') {
    bar.append(labelled('Players', choice(plays, now.players, (value) => change({ players: value || null }))),
      labelled('Budget', choice(budgets, now.samples, (value) => change({ samples: value || null }))),
      labelled('Credit of', choice([['', 'single players'], ['2', 'players and pairs']], now.order, (value) => change({ order: value || null }))));
  }
  if (about.relations.length) bar.append(labelled('Relation', relationChoice(about, now.relation, (value) => change({ relation: value || null }))));
  if (about.run) bar.append(labelled('From', choice([['', 'model'], ['run', 'run']], now.source, (value) => change({ source: value || null }))));
  return bar;
};

// Credit by distance, direct neighbour, type and relation, and of pairs of players, with whiskers of one standard error.
const drawGroups = (card, record, row) => {
  const features = record.tables.find((entry) => entry.kind === 'feature');
  const hops = [...record.groups.hops];
  if (features && hops.length) {
    hops.unshift({ name: 'its own features', value: features.credit[row].reduce((sum, value) => sum + (value ?? 0), features.more.credit[row] ?? 0), error: null });
  }
  const branches = record.groups.branches;
  const lists = [
    ['By distance', hops.length > 1 ? hops : []],
    ['By branch', branches.length > 1 ? branches : []],
    ['By type', record.groups.types],
    ['By relation', record.groups.relations],
    ['Together', record.together.map((pair) => ({ ...pair, name: pair.players.join(' & ') }))],
  ].filter(([, entries]) => entries.length);
  card.hidden = !lists.length;
  card.replaceChildren(...lists.flatMap(([title, entries]) => [make('h2', { text: title }), creditBars(entries)]));
};

const BARS = 8;

const creditBars = (entries) => {
  const reach = (entry) => Math.abs(entry.value) + (entry.error ?? 0);
  const scale = Math.max(...entries.map(reach)) || 1;
  const at = (value) => 50 + (50 * value) / scale;
  const lines = entries.slice(0, BARS).map(({ name, value, error, nodes }) => {
    const bar = make('i', { class: side(value) });
    bar.style.left = `${Math.min(50, at(value))}%`;
    bar.style.width = `${Math.abs(at(value) - 50)}%`;
    const whisker = error ? make('b') : null;
    if (whisker) {
      whisker.style.left = `${at(value - error)}%`;
      whisker.style.width = `${at(value + error) - at(value - error)}%`;
    }
    const says = `${name}${nodes > 1 ? `, ${nodes} players` : ''}: ${signed(value)}, ${error === null ? 'sum' : errorText(error)}`;
    return make('div', { class: 'step', title: says }, make('div', { class: 'name', text: name }),
      make('div', { class: 'credit-bar' }, bar, whisker), make('div', { class: 'value', text: signed(value) }));
  });
  const rest = entries.slice(BARS);
  if (rest.length) lines.push(make('p', { class: 'hint', text: `${rest.length} more are smaller` }));
  return make('div', { class: 'bars' }, ...lines);
};
