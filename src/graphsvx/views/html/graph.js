// The interactive graph: zoom, pan, drag, hover, select, and keys. Used by the one-file page and by
// the explorer.
import { CORNERS, cornersOf, draw, errorText, largest, make, mayBeZero, side, signed } from './tools.js';

let graphViews = 0;

// svg, tip, stage: the picture, its tooltip, and the element that holds both.
export const createGraphView = ({ svg, tip, stage }) => {
  const arrow = `arrow-${graphViews += 1}`;
  let world, dots, lines, graph, row, listeners, onLine, view, selected, cut, width, height;

  // onSelect(index or null) and onEdge(index of a line) are called at clicks.
  const show = (newGraph, output, onSelect, onEdge = null) => {
    graph = newGraph;
    row = output;
    listeners = onSelect;
    onLine = onEdge;
    selected = null;
    cut = 0;
    view = { x: 0, y: 0, k: 1 };
    svg.replaceChildren();
    hideTip();
    place();
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const scale = scaleOf();
    const many = graph.dots.length;
    const unit = Math.max(4, Math.min(22, 0.4 * gap()));
    world = draw('g');
    svg.append(arrowHead(), world);
    const bold = important();
    lines = graph.lines.map(([a, b, oneWay, plays], i) => {
      const credit = graph.lineCredit[row][i];
      const kind = plays ? ` ${side(credit)}` : bold.has(a) && bold.has(b) ? ' bold' : '';
      const weak = !plays && (isWeak(a, scale) || isWeak(b, scale)) ? ' weak' : '';
      const line = draw('line', { class: 'link' + kind + weak, 'marker-end': oneWay ? `url(#${arrow})` : null });
      if (plays) {
        const share = scale ? Math.abs(credit) / scale : 0;
        line.setAttribute('stroke-width', 1 + 6 * share);
        line.style.strokeWidth = `${1 + 6 * share}px`;
        line.style.opacity = 0.35 + 0.65 * share;
      }
      world.append(line);
      if (onLine) world.append(lineTarget(line, a, b, i));
      return line;
    });
    const order = ranked();
    dots = [];
    graph.dots.forEach((dot, i) => {
      const element = dotElement(dot, i, scale, unit, many, bold);
      dots.push(element);
    });
    // Drawn from the least to the most important, so that those are on top.
    [...order].reverse().forEach((i) => world.append(dots[i]));
    (graph.sets ?? []).forEach((set) => set.dots.forEach((i) => dots[i].classList.add('member', set.question)));
    if (order.length) dots[order[0]].setAttribute('tabindex', '0');
    move();
    apply();
    threshold(cut);
    readable();
  };

  // A wide invisible line that can be clicked and reached by keys.
  const lineTarget = (line, a, b, i) => {
    const name = `edge ${graph.dots[a].label} \u2013 ${graph.dots[b].label}`;
    line.target = draw('line', {
      class: 'line-target', role: 'button', 'aria-label': name, 'data-line': `${graph.dots[a].id}-${graph.dots[b].id}`,
      on: { pointerdown: (event) => { event.stopPropagation(); }, click: () => onLine(i) },
    });
    return line.target;
  };

  const scaleOf = () => {
    const single = graph.credit[row].filter((_, i) => graph.dots[i].count === 1);
    return Math.max(largest(single), largest(graph.lineCredit[row]));
  };

  const important = () => {
    const all = graph.dots.map((dot, i) => i).filter((i) => graph.dots[i].plays && graph.dots[i].count === 1);
    const size = (i) => Math.abs(graph.credit[row][i]);
    all.sort((a, b) => size(b) - size(a));
    const most = 0.8 * all.reduce((sum, i) => sum + size(i), 0);
    const important = new Set(graph.dots.map((dot, i) => i).filter((i) => graph.dots[i].centre));
    let carried = 0;
    const scale = scaleOf();
    for (const i of all.slice(0, 10)) {
      if (carried >= most || size(i) === 0 || size(i) < 0.1 * scale) break;
      if (!(size(i) < 2 * graph.error[row][i])) important.add(i);
      carried += size(i);
    }
    return important;
  };

  // In a crowd, those with next to no credit step back.
  const isWeak = (i, scale) => graph.dots.length > 60 && graph.dots[i].plays && !graph.dots[i].centre &&
    graph.dots[i].count === 1 && Math.abs(graph.credit[row][i]) < 0.04 * scale;

  const isUnsure = (i) => graph.dots[i].plays && graph.dots[i].count === 1 && !graph.dots[i].centre &&
    mayBeZero({ credit: graph.credit[row][i], error: graph.error[row][i] });

  const ranked = () =>
    graph.dots.map((dot, i) => i).sort((a, b) =>
      graph.dots[b].centre - graph.dots[a].centre ||
      Math.abs(graph.credit[row][b]) - Math.abs(graph.credit[row][a]) || a - b);

  // Fit the layout's own coordinates into the picture, once.
  const place = () => {
    graph.size ??= [svg.clientWidth || 900, svg.clientHeight || 540];
    [width, height] = graph.size;
    if (graph.placed) return;
    const xs = graph.dots.map((dot) => dot.x);
    const ys = graph.dots.map((dot) => dot.y);
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [bottom, top] = [Math.min(...ys), Math.max(...ys)];
    const scale = Math.min((width - 80) / (right - left || 1), (height - 80) / (top - bottom || 1), 150);
    graph.dots.forEach((dot) => {
      dot.x = width / 2 + scale * (dot.x - (left + right) / 2);
      dot.y = height / 2 - scale * (dot.y - (bottom + top) / 2);
    });
    graph.placed = true;
  };

  const gap = () => {
    const nearest = graph.dots.map((a) =>
      graph.dots.reduce((least, b) => (a === b ? least : Math.min(least, Math.hypot(a.x - b.x, a.y - b.y))), 1e9));
    nearest.sort((a, b) => a - b);
    return nearest[Math.floor(nearest.length / 4)] || 100;
  };

  const arrowHead = () =>
    draw('defs', {}, draw('marker',
      { id: arrow, viewBox: '0 0 8 8', refX: 16, refY: 4, markerWidth: 6, markerHeight: 6, orient: 'auto' },
      draw('path', { d: 'M0,0 L8,4 L0,8 z', fill: 'context-stroke' })));

  // A circle, or the shape of the node's type in a typed graph, of about the same area.
  const shapeOf = (dot, name, radius) => {
    const corners = dot.count > 1 ? null : CORNERS[dot.shape % CORNERS.length];
    if (!corners) return draw('circle', { class: name, r: radius });
    const points = cornersOf(corners, radius).map((point) => point.map((value) => value.toFixed(2)).join(','));
    return draw('polygon', { class: name, points: points.join(' ') });
  };

  const dotElement = (dot, i, scale, unit, many, bold) => {
    const credit = graph.credit[row][i];
    const share = scale ? Math.min(1, Math.abs(credit) / scale) : 0;
    const coloured = dot.class !== null && dot.count === 1;
    const crowd = many > 60;
    const radius = dot.count > 1 ? unit * 1.25
      : unit * (dot.centre ? (crowd ? 2 : 1.15) : (crowd ? 0.6 + 1.5 * Math.sqrt(share) : 0.65 + 0.6 * Math.sqrt(share)));
    const base = shapeOf(dot, 'base', radius);
    if (coloured) base.style.fill = graph.classes[dot.class].colour;
    const parts = [shapeOf(dot, 'halo', radius + 7), base];
    if (dot.plays && share > 0) {
      const ring = shapeOf(dot, `credit ${side(credit)}${coloured ? '' : ' filled'}`, radius);
      ring.style.strokeWidth = `${0.5 + 0.42 * unit * share}px`;
      ring.style.opacity = coloured ? 0.3 + 0.7 * share : share;
      parts.push(ring);
    }
    if (dot.centre) parts.push(shapeOf(dot, 'mark', radius + 4));
    const name = dot.label.length > 16 ? dot.label.slice(0, 15) + '\u2026' : dot.label;
    const fits = name.length * 6.2 < 2 * radius;
    const text = draw('text', { text: name, class: fits ? (coloured ? 'inside' : 'on-node') : 'outside' });
    text.style.fontSize = fits ? `${Math.min(13, (2.6 * radius) / Math.max(2, name.length))}px` : '11px';
    if (!fits) text.setAttribute('y', radius + (dot.centre ? 17 : 13));
    parts.push(text);
    const small = (many > 40 && share < 0.12) || (many > 20 && !fits && !bold.has(i));
    const quiet = small && !dot.centre && dot.count === 1;
    return draw('g', {
      class: 'dot' + (quiet ? ' quiet' : '') + (isWeak(i, scale) ? ' weak' : '') + (isUnsure(i) ? ' unsure' : ''), tabindex: '-1', role: 'button', 'data-id': dot.id, 'data-index': i,
      'aria-label': describeDot(dot, i).join(', '),
      on: {
        pointerenter: () => showTip(i), pointerleave: hideTip, focus: () => showTip(i), blur: hideTip,
        pointerdown: (event) => grab(event, i), keydown: (event) => keys(event, i),
      },
    }, ...parts);
  };

  // Black or white, whichever has the larger contrast on what a label is written on.
  const inkOn = (rgb) => {
    const [red, green, blue] = rgb.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    const level = 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    return 1.05 / level > level / 0.0675 ? '#ffffff' : '#1f2430';
  };

  const channels = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);

  const readable = () => {
    (dots ?? []).forEach((element) => {
      const text = element.querySelector('text.inside, text.on-node');
      if (!text) return;
      const base = getComputedStyle(element.querySelector('.base'));
      const behind = channels(getComputedStyle(document.body).getPropertyValue('--card-rgb'));
      const filled = channels(base.fill);
      // What may be 0 is pale: the card shines through.
      let under = behind.map((part, i) => part + (filled[i] - part) * Number(base.opacity));
      const over = element.querySelector('.credit.filled');
      if (over) {
        const style = getComputedStyle(over);
        const share = Number(style.opacity);
        const colour = channels(style.fill);
        under = under.map((part, i) => part + (colour[i] - part) * share);
      }
      text.style.fill = inkOn(under);
    });
  };

  const describeDot = (dot, i) => {
    const said = [dot.count > 1 ? `${dot.count} more nodes together` : nodeName(dot)];
    if (dot.centre) said.push('explained');
    if (dot.plays) said.push(`credit ${signed(graph.credit[row][i])}`);
    const error = graph.error[row][i];
    if (dot.plays && dot.count === 1 && error !== 0) said.push(`standard error ${errorText(error)}`);
    if (isUnsure(i)) said.push('may be 0');
    if (dot.class !== null) said.push(graph.classes[dot.class].name);
    if (dot.hop > 0) said.push(dot.hop === 1 ? '1 hop away' : `${dot.hop} hops away`);
    return said;
  };

  const nodeName = (dot) => (dot.label === String(dot.id) ? `node ${dot.id}` : dot.label);

  const move = () => {
    dots.forEach((element, i) => element.setAttribute('transform', `translate(${graph.dots[i].x},${graph.dots[i].y})`));
    lines.forEach((line, i) => {
      const [a, b] = graph.lines[i];
      for (const element of line.target ? [line, line.target] : [line]) {
        element.setAttribute('x1', graph.dots[a].x);
        element.setAttribute('y1', graph.dots[a].y);
        element.setAttribute('x2', graph.dots[b].x);
        element.setAttribute('y2', graph.dots[b].y);
      }
    });
  };

  const apply = () => {
    world.setAttribute('transform', `translate(${view.x},${view.y}) scale(${view.k})`);
    svg.classList.toggle('close', view.k >= 2);
  };

  const zoom = (factor, x = width / 2, y = height / 2) => {
    const k = Math.max(0.4, Math.min(12, view.k * factor));
    view = { k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k };
    hideTip();
    apply();
  };

  const fit = () => {
    view = { x: 0, y: 0, k: 1 };
    apply();
  };

  const inPicture = (event) => {
    const matrix = svg.getScreenCTM();
    return { x: (event.clientX - matrix.e) / matrix.a, y: (event.clientY - matrix.f) / matrix.d };
  };

  // A press on a dot drags it, anywhere else it moves the picture; without a way it is a click.
  const grab = (event, index) => {
    if (event.button !== 0) return;
    event.stopPropagation();
    const start = inPicture(event);
    const from = index === null ? { ...view } : { x: graph.dots[index].x, y: graph.dots[index].y };
    let moved = false;
    svg.setPointerCapture(event.pointerId);
    const onMove = (now) => {
      const here = inPicture(now);
      const [dx, dy] = [here.x - start.x, here.y - start.y];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true;
      svg.classList.add('moving');
      hideTip();
      if (index === null) {
        view = { ...view, x: from.x + dx, y: from.y + dy };
        apply();
      } else {
        graph.dots[index].x = from.x + dx / view.k;
        graph.dots[index].y = from.y + dy / view.k;
        move();
      }
    };
    const onEnd = () => {
      svg.removeEventListener('pointermove', onMove);
      svg.removeEventListener('pointerup', onEnd);
      svg.removeEventListener('pointercancel', onEnd);
      svg.classList.remove('moving');
      if (moved) return;
      select(index);
      if (index !== null) dots[index].focus({ preventScroll: true });
    };
    svg.addEventListener('pointermove', onMove);
    svg.addEventListener('pointerup', onEnd);
    svg.addEventListener('pointercancel', onEnd);
  };

  const keys = (event, i) => {
    const order = ranked();
    const at = order.indexOf(i);
    const to = {
      ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1,
    }[event.key];
    if (to !== undefined) focusDot(order[(to + order.length) % order.length]);
    else if (event.key === 'Enter' || event.key === ' ') select(i);
    else if (event.key === 'Escape') select(null);
    else if (event.key === '+' || event.key === '=') zoom(1.3);
    else if (event.key === '-') zoom(1 / 1.3);
    else if (event.key === '0') fit();
    else return;
    event.preventDefault();
  };

  const focusDot = (i) => {
    dots.forEach((element, j) => element.setAttribute('tabindex', i === j ? '0' : '-1'));
    dots[i].focus();
  };

  const select = (i) => {
    selected = i;
    dots.forEach((element, j) => element.classList.toggle('selected', i === j));
    listeners(i);
  };

  const showTip = (i) => {
    const [name, ...rest] = describeDot(graph.dots[i], i);
    const partners = partnersOf(i);
    const together = partners.map(([j, value]) => `with ${nodeName(graph.dots[j])} together ${signed(value)}`);
    tip.replaceChildren(make('div', { text: name }), ...[...rest, ...together].map((words) => make('div', { text: words })));
    partners.forEach(([j, value]) => dots[j].classList.add('partner', side(value)));
    tip.hidden = false;
    const frame = stage.getBoundingClientRect();
    const dot = dots[i].getBoundingClientRect();
    const x = Math.min(dot.right - frame.left + 8, frame.width - tip.offsetWidth - 4);
    const y = Math.min(Math.max(0, dot.top - frame.top - 6), frame.height - tip.offsetHeight - 4);
    tip.style.left = `${Math.max(0, x)}px`;
    tip.style.top = `${Math.max(0, y)}px`;
  };

  const hideTip = () => {
    tip.hidden = true;
    (dots ?? []).forEach((element) => element.classList.remove('partner', 'for', 'against'));
  };

  // The nodes that a node interacts with most, and how much.
  const partnersOf = (i) => (graph.together ?? [])
    .filter(([a, b]) => a === i || b === i)
    .map(([a, b, values]) => [a === i ? b : a, values[row] ?? 0])
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3);

  const threshold = (least) => {
    cut = least;
    const below = (i) => !graph.dots[i].centre && Math.abs(graph.credit[row][i]) < least;
    dots.forEach((element, i) => element.classList.toggle('below', below(i)));
    lines.forEach((line, i) => {
      const [a, b, , plays] = graph.lines[i];
      const hidden = plays ? Math.abs(graph.lineCredit[row][i]) < least : below(a) || below(b);
      line.classList.toggle('below', hidden);
    });
  };

  svg.addEventListener('pointerdown', (event) => grab(event, null));
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    const here = inPicture(event);
    zoom(Math.exp(-event.deltaY * 0.0016), here.x, here.y);
  }, { passive: false });

  // Nodes (by id) and lines (by index) that are switched off.
  const markOff = (nodes, edges) => {
    const gone = (i) => nodes.has(graph.dots[i].id);
    dots.forEach((element, i) => {
      element.classList.toggle('off', gone(i));
      element.setAttribute('aria-pressed', String(gone(i)));
    });
    lines.forEach((line, i) => {
      const [a, b] = graph.lines[i];
      line.classList.toggle('off', edges.has(i) || gone(a) || gone(b));
    });
  };

  return {
    show, select, threshold, nodeName, readable, zoom, fit, markOff, selected: () => selected, first: () => ranked()[0],
  };
};
