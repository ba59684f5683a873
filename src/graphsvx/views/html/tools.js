// Small tools. Text from data goes through textContent only: it can never become markup.

export const byId = (id) => document.getElementById(id);

export const make = (tag, options = {}, ...children) => {
  const element = document.createElement(tag);
  return fill(element, options, children);
};

export const draw = (tag, options = {}, ...children) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  return fill(element, options, children);
};

export const fill = (element, options, children) => {
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') element.textContent = value;
    else if (name === 'on') for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
};

// Both ends of a long name: those of edges differ at the end.
export const shortened = (name, most = 26) => {
  const letters = [...name];
  if (letters.length <= most) return name;
  const half = Math.floor((most - 1) / 2);
  return `${letters.slice(0, half).join('')}…${letters.slice(-half).join('')}`;
};

// Shapes of node types: a circle (null), or corners and the angle of the first one.
export const CORNERS = [null, [4, 45], [3, -90], [4, 0], [3, 90], [5, -90], [6, 0], [8, 22.5]];

export const cornersOf = ([count, turn], radius) => {
  // As large as a circle of this radius.
  const reach = radius * Math.sqrt((2 * Math.PI) / (count * Math.sin((2 * Math.PI) / count)));
  return Array.from({ length: count }, (_, k) => {
    const angle = ((turn + (360 * k) / count) * Math.PI) / 180;
    return [reach * Math.cos(angle), reach * Math.sin(angle)];
  });
};

export const minus = (text) => text.replace('-', '\u2212');

// A number as people read it: four decimals, or two digits where that would show only zeros.
export const plain = (value) => {
  if (value === null) return '\u2013';
  const fixed = value.toFixed(4);
  return minus(Number(fixed) === 0 && value !== 0 ? value.toExponential(1) : fixed);
};

export const signed = (value) => {
  if (value === null) return '\u2013';
  if (value === 0) return '0';
  return (value > 0 ? '+' : '') + plain(value);
};

export const errorText = (error) => {
  if (error === null) return 'not given';
  return '\u00b1 ' + (error === 0 ? '0' : plain(error));
};

export const side = (value) => (value >= 0 ? 'for' : 'against');

// Whether the 95 % interval of a player's credit holds 0.
export const mayBeZero = (player) => Boolean(player.error) && Math.abs(player.credit ?? 0) < 2 * player.error;

export const percent = (share) => (100 * share).toFixed(share < 0.1 ? 1 : 0) + ' %';

export const fact = (name, value, kind = '') =>
  make('div', {}, make('dt', { text: name }), make('dd', { text: value, class: kind }));

export const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
