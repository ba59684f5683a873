// The Compare view: two methods, two models or two nodes side by side.
import { asQuery, get } from './api.js';
import { change, state } from './state.js';
import { draw, fact, make, plain } from './tools.js';
import { createGraphView } from './graph.js';
import { choice, empty, failure, graphCard, hasQuestion, isPredicted, labelled, nodeNumber, nodeWords, whichOf } from './parts.js';
import { nothingChosen, notPredicted } from './why.js';

export const compareView = async (main, about) => {
  const now = state();
  if (!about.live) {
    main.replaceChildren(empty('Comparing needs the model', 'This run is shown without its model. Start with: graphsvx serve DATASET --model MODEL'));
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
  const name = Object.keys(whichOf(now))[0];
  const otherModel = about.models.find((model) => model !== (now.model ?? about.models[0]));
  const a = { ...whichOf(now), model: now.model, method: now.method, samples: 1000 };
  const fallback = otherModel ? { model: otherModel } : { method: 'saliency' };
  const b = {
    ...whichOf(now), [name]: now.b_which ?? now[name],
    model: now.b_model ?? (now.b_method || now.b_which ? now.model : fallback.model ?? now.model),
    method: now.b_method ?? (now.b_model || now.b_which ? now.method : fallback.method ?? now.method),
    samples: 1000,
  };
  [a, b].forEach((question) => { if (question.method && question.method !== 'graphsvx') delete question.samples; });
  if (now.target) a.target = now.target;

  const pick = (question, prefix) => {
    const field = make('input', { type: 'text', value: question[name], size: about.types.length ? 12 : 6, 'aria-label': `${name} ${prefix || 'a'}`, inputmode: about.types.length ? 'text' : 'numeric' });
    field.addEventListener('change', () => change({ [prefix ? 'b_which' : name]: field.value.trim() }));
    const parts = [labelled(name, field), labelled('Method', choice(about.methods.map((method) => [method, method]), question.method ?? 'graphsvx',
      (value) => change({ [`${prefix}method`]: value })))];
    if (about.models.length > 1) {
      parts.push(labelled('Model', choice(about.models.map((model) => [model, model]), question.model ?? about.models[0], (value) => change({ [`${prefix}model`]: value }))));
    }
    return make('div', { class: 'settings' }, ...parts);
  };
  const sides = [['A', a, ''], ['B', b, 'b_']].map(([letter, question, prefix]) => {
    const { card, svg, view } = graphCard(createGraphView, draw, `Explanation ${letter}`);
    const title = make('h2', { text: letter });
    const words = make('p', { class: 'hint', text: 'Computing…' });
    card.prepend(title, pick(question, prefix), words);
    svg.dataset.side = letter;
    return { card, svg, view, title, words, question, letter };
  });
  const agreement = make('section', { class: 'card wide', id: 'agreement', 'aria-label': 'Agreement' }, make('h2', { text: 'Agreement' }), make('p', { class: 'hint loading', text: 'Computing…' }));
  const curves = make('section', { class: 'card wide', id: 'curves', 'aria-label': 'Fidelity' }, make('h2', { text: 'Fidelity' }), make('p', { class: 'hint loading', text: 'Computing…' }));
  const root = make('div', { class: 'compare' }, ...sides.map((side) => side.card), agreement, curves);
  main.replaceChildren(root);

  await Promise.all(sides.map(async (side) => {
    try {
      const record = await get('explain/page', side.question);
      const output = record.outputs[record.target_row];
      side.title.textContent = `${side.letter}: ${output.title}`;
      side.words.textContent = output.sentences;
      if (record.graph) side.view.show(record.graph, record.target_row, () => {});
    } catch (error) {
      side.card.append(failure(error));
    }
  }));
  try {
    showAgreement(agreement, await get('agreement', { a: asQuery(a), b: asQuery(b) }), about);
  } catch (error) {
    agreement.replaceChildren(make('h2', { text: 'Agreement' }), failure(error));
  }
  try {
    showCurves(curves, await Promise.all([get('fidelity', a), get('fidelity', b)]));
  } catch (error) {
    curves.replaceChildren(make('h2', { text: 'Fidelity' }), make('p', { class: 'hint', text: error.message }));
  }
};

const showAgreement = (card, answer, about) => {
  const verdict = answer.spearman === null ? 'There is too little to compare.'
    : answer.spearman > 0.8 ? 'They rank the players almost alike.'
      : answer.spearman > 0.4 ? 'They agree on part of the ranking.' : answer.spearman > -0.2 ? 'Their rankings have little in common.' : 'Their rankings contradict each other.';
  card.replaceChildren(make('h2', { text: 'Agreement' }), make('p', { text: verdict }),
    make('dl', { class: 'facts' }, fact('Rank correlation', answer.spearman === null ? '–' : plain(answer.spearman)), fact('Cosine', plain(answer.cosine)),
      fact(`Shared of the top ${answer.top}`, String(answer.overlap)), fact('Players', String(answer.players.length))),
    scatter(answer.players, answer.level, about));
};

const W = 560, H = 300, M = 44;

const frame = (label, ...children) => draw('svg', { class: 'chart', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': label }, ...children);

const text = (x, y, words, anchor = 'middle') => draw('text', { x, y, text: words, 'text-anchor': anchor });

const scatter = (players, level, about) => {
  const words = (id) => (level === 'nodes' ? nodeWords(about, id) : `${level.slice(0, -1)} ${[].concat(id).join(' – ')}`);
  const reach = (key) => Math.max(1e-12, ...players.map((player) => Math.abs(player[key] ?? 0)));
  const [rx, ry] = [reach('a'), reach('b')];
  const x = (value) => M + ((W - 2 * M) * (value + rx)) / (2 * rx);
  const y = (value) => H - M - ((H - 2 * M) * (value + ry)) / (2 * ry);
  return frame('Credit by A against credit by B',
    draw('line', { class: 'axis', x1: x(0), x2: x(0), y1: M / 2, y2: H - M }), draw('line', { class: 'axis', x1: M, x2: W - M, y1: y(0), y2: y(0) }),
    ...players.map((player) => draw('circle', { cx: x(player.a ?? 0), cy: y(player.b ?? 0), r: 4, class: (player.a ?? 0) * (player.b ?? 0) < 0 ? 'differs' : 'agrees' },
      draw('title', { text: `${words(player.id)}: A ${player.a === null ? '–' : plain(player.a)}, B ${player.b === null ? '–' : plain(player.b)}` }))),
    text(W / 2, H - 10, 'credit by A'), draw('text', { x: 14, y: H / 2, text: 'credit by B', 'text-anchor': 'middle', transform: `rotate(-90 14 ${H / 2})` }));
};

const showCurves = (card, [a, b]) => {
  const values = [...a.plus, ...b.plus, ...a.minus, ...b.minus, 0];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const most = Math.max(...a.top, ...b.top, 2);
  const x = (top) => M + ((W - 2 * M) * (top - 1)) / (most - 1);
  const y = (value) => H - M - ((H - 1.5 * M) * (value - low)) / (high - low || 1);
  const path = (answer, key, kind) => draw('polyline', { class: `curve ${kind}`, points: answer.top.map((top, i) => `${x(top)},${y(answer[key][i])}`).join(' ') });
  const chart = (key, title) => make('figure', {}, make('figcaption', { text: title }),
    frame(title, draw('line', { class: 'axis', x1: M, x2: W - M, y1: y(0), y2: y(0) }), path(a, key, 'side-a'), path(b, key, 'side-b'),
      text(M, H - 24, '1'), text(W - M, H - 24, String(most)), text(W / 2, H - 8, 'top players'), text(M - 6, y(high) + 4, high.toFixed(2), 'end'), text(M - 6, y(low) + 4, low.toFixed(2).replace('-', '−'), 'end')));
  card.replaceChildren(make('h2', { text: 'Fidelity' }),
    make('p', { class: 'hint', text: 'How much the score falls without the top players (high is good), and how much is missing with them alone (low is good).' }),
    make('div', { class: 'legend' }, make('span', {}, make('i', { class: 'swatch side-a' }), document.createTextNode('A')), make('span', {}, make('i', { class: 'swatch side-b' }), document.createTextNode('B'))),
    make('div', { class: 'charts' }, chart('plus', 'fidelity+: without them'), chart('minus', 'fidelity−: with them alone')));
};
