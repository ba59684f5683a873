// Requests to the server. Errors carry what the server said.

const query = (parameters) => new URLSearchParams(
  Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ''),
).toString();

export const address = (name, parameters = {}) => {
  const text = query(parameters);
  return `api/v1/${name}${text ? `?${text}` : ''}`;
};

export const asQuery = query;

export const get = async (name, parameters = {}, signal = undefined) => {
  let response;
  try {
    response = await fetch(address(name, parameters), { signal, credentials: 'same-origin' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The server does not answer. Start it again in the terminal, and open the address that it prints.');
  }
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
};

// Better and better estimates; returns a function that stops them.
export const stream = (parameters, onEstimate, onFailure) => {
  const source = new EventSource(address('explain/stream', parameters));
  let open = true;
  const stop = () => {
    open = false;
    source.close();
  };
  source.addEventListener('estimate', (event) => {
    const record = JSON.parse(event.data);
    if (record.final) stop();
    onEstimate(record);
  });
  source.addEventListener('failed', (event) => {
    stop();
    onFailure(new Error(JSON.parse(event.data).error));
  });
  source.addEventListener('error', () => {
    if (!open) return;
    stop();
    // The stream does not say why; the plain request does.
    get('explain/page', { ...parameters, samples: 100 }).then(onEstimate, onFailure);
  });
  return stop;
};
