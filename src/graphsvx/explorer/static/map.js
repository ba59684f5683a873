// The whole graph on a canvas: zoom, pan, hover and pick among up to 20,000 nodes.
import { make } from './tools.js';
import { className, isPredicted, nodeWords } from './parts.js';

export const createMap = (canvas, tip, data, about, onPick, marked = []) => {
  const nodes = data.x.length;
  const context = canvas.getContext('2d');
  const wrong = new Set(data.wrong);
  const types = about.types.flatMap((type, i) => Array(type.count).fill(i));
  let width = 0, height = 0, unit = 1, view = { x: 0, y: 0, k: 1 }, mode = 'predicted', hover = -1, pending = false;
  const grid = new Map();
  const CELLS = 100;
  for (let i = 0; i < nodes; i += 1) {
    const key = Math.floor(data.x[i] / 10001 * CELLS) * CELLS + Math.floor(data.y[i] / 10001 * CELLS);
    if (!grid.has(key)) grid.set(key, []);
    grid.get(key).push(i);
  }

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const screen = (i) => [
    view.x + view.k * (width / 2 + (data.x[i] / 10000 - 0.5) * unit),
    view.y + view.k * (height / 2 - (data.y[i] / 10000 - 0.5) * unit),
  ];
  const radius = () => Math.max(1.6, Math.min(9, (nodes > 3000 ? 2 : nodes > 800 ? 2.8 : 4) * Math.sqrt(view.k)));

  const schedule = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; paint(); });
  };

  const paint = () => {
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.strokeStyle = ink('--line');
    context.globalAlpha = nodes > 3000 ? 0.18 : 0.34;
    context.lineWidth = Math.min(1.4, 0.5 * Math.sqrt(view.k));
    context.beginPath();
    for (let e = 0; e < data.edges.length; e += 2) {
      const [x1, y1] = screen(data.edges[e]);
      const [x2, y2] = screen(data.edges[e + 1]);
      if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width || Math.max(y1, y2) < 0 || Math.min(y1, y2) > height) continue;
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
    }
    context.stroke();
    context.globalAlpha = 1;
    const r = radius();
    const groups = new Map();
    for (let i = 0; i < nodes; i += 1) {
      const kind = mode === 'type' ? types[i] : mode === 'wrong' ? (wrong.has(i) ? 'wrong' : 'right') : (mode === 'class' ? data.class ?? data.predicted : data.predicted)[i];
      if (!groups.has(kind)) groups.set(kind, []);
      groups.get(kind).push(i);
    }
    const keys = [...groups.keys()].sort((a, b) => (a === 'wrong') - (b === 'wrong'));
    keys.forEach((kind) => {
      context.fillStyle = kind === 'wrong' ? ink('--for') : kind === 'right' ? ink('--grey') : (mode === 'type' ? about.types : about.classes)[kind]?.colour ?? ink('--grey');
      context.beginPath();
      groups.get(kind).forEach((i) => {
        const [x, y] = screen(i);
        if (x < -9 || y < -9 || x > width + 9 || y > height + 9) return;
        context.moveTo(x + r, y);
        context.arc(x, y, kind === 'wrong' ? r * 1.3 : r, 0, 7);
      });
      context.fill();
    });
    [...marked, hover].filter((i) => i >= 0).forEach((i) => {
      const [x, y] = screen(i);
      context.strokeStyle = ink('--ink');
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, r + 3, 0, 7);
      context.stroke();
    });
  };

  const nearest = (px, py) => {
    const reach = 12 / view.k / unit;
    const gx = ((px - view.x) / view.k - width / 2) / unit + 0.5;
    const gy = 0.5 - ((py - view.y) / view.k - height / 2) / unit;
    const cell = (value) => Math.floor(value * 10000 / 10001 * CELLS);
    let best = -1;
    let least = reach;
    for (let a = cell(gx - reach); a <= cell(gx + reach); a += 1) {
      for (let b = cell(gy - reach); b <= cell(gy + reach); b += 1) {
        (grid.get(a * CELLS + b) ?? []).forEach((i) => {
          const distance = Math.hypot(data.x[i] / 10000 - gx, data.y[i] / 10000 - gy);
          if (distance < least) [best, least] = [i, distance];
        });
      }
    }
    return best;
  };

  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  const say = (i, x, y) => {
    hover = i;
    tip.hidden = i < 0;
    canvas.style.cursor = i < 0 ? 'grab' : 'pointer';
    if (i >= 0) {
      const lines = [nodeWords(about, i)];
      if (about.task !== 'link' && isPredicted(about, i)) lines.push(className(about, data.predicted[i]));
      if (wrong.has(i)) lines.push(`wrong, is ${className(about, data.class[i])}`);
      tip.replaceChildren(...lines.map((text) => make('div', { text })));
      tip.style.left = `${Math.min(x + 12, width - tip.offsetWidth - 4)}px`;
      tip.style.top = `${Math.max(0, y - 34)}px`;
    }
    schedule();
  };

  const zoom = (factor, x = width / 2, y = height / 2) => {
    const k = Math.max(0.6, Math.min(60, view.k * factor));
    view = { k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k };
    schedule();
  };

  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0016), ...point(event));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener('pointerdown', (event) => {
    drag = { at: point(event), from: { ...view }, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = point(event);
    if (!drag) {
      say(nearest(x, y), x, y);
      return;
    }
    const [dx, dy] = [x - drag.at[0], y - drag.at[1]];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    view = { ...view, x: drag.from.x + dx, y: drag.from.y + dy };
    say(-1);
  });
  canvas.addEventListener('pointerup', (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const node = nearest(...point(event));
    if (node >= 0) onPick(node);
  });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('pointerleave', () => { if (!drag) say(-1); });
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (step) view = { ...view, x: view.x + step[0], y: view.y + step[1] };
    else if (event.key === '+' || event.key === '=') zoom(1.4);
    else if (event.key === '-') zoom(1 / 1.4);
    else if (event.key === '0') view = { x: 0, y: 0, k: 1 };
    else return;
    event.preventDefault();
    schedule();
  });

  const resize = () => {
    const ratio = window.devicePixelRatio || 1;
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    unit = Math.min(width, height) - 24;
    schedule();
  };
  return {
    start: () => { new ResizeObserver(resize).observe(canvas); resize(); },
    colour: (value) => { mode = value; schedule(); },
    zoom,
    fit: () => { view = { x: 0, y: 0, k: 1 }; schedule(); },
    at: (i) => screen(i),
    canvas,
  };
};
