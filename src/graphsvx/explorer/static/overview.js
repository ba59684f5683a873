// The Overview of a run: what matters on the whole, and where to look.
import { get } from './api.js';
import { go } from './state.js';
import { fact, make, plain, side, signed } from './tools.js';
import { choice, classMark, className, command, empty, labelled, nodeKey, scoreText } from './parts.js';

export const overviewView = async (main, about) => {
  if (!about.run) {
    const predicted = about.types.find((type) => type.predicted);
    const nodes = predicted && about.task === 'node' ? ` --nodes ${predicted.name}:test` : '';
    main.replaceChildren(empty('No run is open', 'The overview sums up many explanations. Make a run, then open its folder:',
      command(`graphsvx run ${about.title}${nodes} --out runs/${about.title}\ngraphsvx serve runs/${about.title}`)));
    return;
  }
  const run = await get('run');
  const open = (row) => go('why', { [about.task]: about.task === 'graph' ? row.id : nodeKey(about, row.id), source: 'run' });
  const table = (title, hint, rows, last, value) => make('section', { class: 'card', 'aria-label': title }, make('h2', { text: title }),
    rows.length ? make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `List: ${title}` }, make('table', {},
      make('thead', {}, make('tr', {}, ...[about.task, 'Predicted', 'Class', last].map((text) => make('th', { scope: 'col', text })))),
      make('tbody', {}, ...rows.map((row) => make('tr', { class: 'link-row', 'data-id': row.id, on: { click: () => open(row) } },
        make('td', {}, make('button', { type: 'button', class: 'plain', text: about.types.length ? row.name : String(row.id) })),
        make('td', {}, classMark(about, row.predicted), document.createTextNode(className(about, row.predicted))),
        make('td', { text: className(about, row.class) }), make('td', { class: 'number', text: value(row) }))))))
      : make('p', { class: 'hint', text: hint }));
  const bars = (title, lines) => {
    const scale = Math.max(1e-12, ...lines.map((line) => Math.max(Math.abs(line.low ?? line.mean), Math.abs(line.high ?? line.mean))));
    return make('div', { class: 'global' }, ...lines.slice(0, 12).map((line) => {
      const bar = make('i', { class: side(line.mean) });
      bar.style.left = `${line.mean < 0 ? 50 - (50 * -line.mean) / scale : 50}%`;
      bar.style.width = `${(50 * Math.abs(line.mean)) / scale}%`;
      const whisker = make('b');
      whisker.style.left = `${50 + (50 * (line.low ?? line.mean)) / scale}%`;
      whisker.style.width = `${(50 * ((line.high ?? line.mean) - (line.low ?? line.mean))) / scale}%`;
      return make('div', { class: 'step' }, make('div', { class: 'name', text: line.name, title: line.name }),
        make('div', { class: 'credit-bar' }, bar, whisker), make('div', { class: 'value', text: signed(line.mean) }));
    }));
  };
  const features = make('section', { class: 'card', 'aria-label': 'Features' });
  const showFeatures = (output) => {
    const lines = output === '' ? run.features : run.classes[output];
    const kinds = [['', 'all classes'], ...Object.keys(run.classes).map((key) => [key, className(about, Number(key))])];
    features.replaceChildren(make('div', { class: 'toolbar' }, make('h2', { text: 'Features that matter most' }), labelled('Of', choice(kinds, output, showFeatures))),
      lines.length ? bars('features', lines) : make('p', { class: 'hint', text: 'No features play in this run.' }));
  };
  showFeatures('');
  const status = run.status;
  main.replaceChildren(make('div', { class: 'overview' },
    make('section', { class: 'card wide', 'aria-label': 'Run' }, make('h2', { text: run.folder }),
      make('dl', { class: 'facts' }, fact('State', status.state), fact('Explained', `${status.done} of ${status.total}`), fact('Failed', String(status.failed)),
        fact('Exact', `${run.exact} of ${run.explanations}`), fact('Model calls', run.calls.toLocaleString('en')), fact('Method', run.method ?? 'GraphSVX'))),
    features,
    make('section', { class: 'card', 'aria-label': 'Distance' }, make('h2', { text: 'Credit by distance' }), run.roles.length ? bars('roles', run.roles) : make('p', { class: 'hint', text: 'No nodes play in this run.' }),
      ...(run.types.length ? [make('h2', { text: 'Credit by type' }), bars('types', run.types)] : [])),
    table('Wrong predictions', 'No prediction of this run is known to be wrong.', run.wrong, 'Score', (row) => scoreText(about, row.score)),
    table('Widest error bars', 'Every explanation is exact.', run.widest, '± s.e.', (row) => plain(row.error))));
};
