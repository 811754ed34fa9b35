// The browser's storage. Where it is forbidden or full, a value lives until the page is left.

function storage(name) {
  const here = new Map();
  return {
    get(key) {
      try {
        return here.get(key) ?? window[name].getItem(key);
      } catch {
        return null;
      }
    },
    set(key, value) {
      here.set(key, value);
      try {
        window[name].removeItem(key); // if the new value has no room, the old one is not to come back
        window[name].setItem(key, value);
        here.delete(key);
      } catch {
        // it is only here
      }
    },
  };
}

export const ofTab = storage("sessionStorage");
export const ofBrowser = storage("localStorage");
