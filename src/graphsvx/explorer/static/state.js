// What is looked at is in the address: the back button and shared links work by themselves.

let listener = () => {};

export const state = () => Object.fromEntries(new URLSearchParams(window.location.search));

const write = (values, replace) => {
  const text = new URLSearchParams(
    Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== ''),
  ).toString();
  const url = `${window.location.pathname}${text ? `?${text}` : ''}`;
  if (url === window.location.pathname + window.location.search) return;
  window.history[replace ? 'replaceState' : 'pushState'](null, '', url);
};

// Change some values; null takes one away. The view is drawn again unless `quiet`.
export const change = (values, { replace = false, quiet = false } = {}) => {
  write({ ...state(), ...values }, replace);
  if (!quiet) listener();
};

// Another prediction is looked at: what belonged to the last one goes.
export const go = (view, which = {}) => {
  const { model, theme } = state();
  write({ view, model, theme, ...which }, false);
  listener();
};

export const onChange = (act) => {
  listener = act;
  window.addEventListener('popstate', act);
};
