// What this browser keeps: the device's key, the name, settings; channels only when the person says so.
import { makeIdentity } from "./handshake.js";

const database = "pttd", table = "kept";

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(database, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(table);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
}

async function asked(mode, ask) {
  const base = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = base.transaction(table, mode);
      const request = ask(transaction.objectStore(table));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
  } finally {
    base.close();
  }
}

export const get = key => asked("readonly", store => store.get(key)).catch(() => undefined);
export const put = (key, value) => asked("readwrite", store => store.put(value, key)).catch(() => undefined);
export const forget = key => asked("readwrite", store => store.delete(key)).catch(() => undefined);

/**
 * The identity of this device: made once and kept. Its private key cannot be read, here or elsewhere. Where the browser keeps
 * nothing (a private window), it is another device each time.
 */
export async function deviceIdentity() {
  const kept = await get("identity");
  if (kept?.privateKey && kept.publicKey) return kept;
  const made = await makeIdentity();
  await put("identity", made);
  // Two pages that began at once have one key: the one that is kept.
  return await get("identity") ?? made;
}
