// What the browser does in its own time, waited for only so long.

/** Settles as `promise` does, or rejects with `problem` after so many milliseconds. */
export function within(milliseconds, promise, problem) {
  let timer;
  const tooLong = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(problem)), milliseconds); });
  return Promise.race([promise, tooLong]).finally(() => clearTimeout(timer));
}
