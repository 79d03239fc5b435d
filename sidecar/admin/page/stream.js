// The stream of snapshots, opened again whenever it breaks. A tab that nobody has looked at for a
// while lets go of it: browsers open only a few connections to one place.

const AGAIN_MS = 2000;
const LATE_MS = 3500;
const LOST_MS = 8000;
const UNSEEN_MS = 60_000;

export class Stream {
  /** onSnapshot(snapshot); onState("live" | "late" | "lost" | "resting", seconds without news). */
  constructor(address, onSnapshot, onState) {
    this._address = address;
    this._onSnapshot = onSnapshot;
    this._onState = onState;
    this._source = null;
    this._last = Date.now();
    this._resting = false;
    this._rest = 0;
    this._again = 0;
    setInterval(() => this._look(), 500);
    document.addEventListener("visibilitychange", () => this._seen());
    this._open();
  }

  _open() {
    clearTimeout(this._again);
    this._source?.close();
    const source = new EventSource(this._address);
    this._source = source;
    source.onmessage = (event) => {
      this._last = Date.now();
      this._onSnapshot(JSON.parse(event.data));
      this._onState("live", 0);
    };
    source.onerror = () => {
      source.close();
      this._onState("lost", (Date.now() - this._last) / 1000);
      this._again = setTimeout(() => this._open(), AGAIN_MS);
    };
  }

  _look() {
    const silent = Date.now() - this._last;
    if (this._resting || silent < LATE_MS) return;
    const closed = this._source.readyState === EventSource.CLOSED;
    this._onState(closed || silent > LOST_MS ? "lost" : "late", silent / 1000);
  }

  _seen() {
    clearTimeout(this._rest);
    if (document.hidden) {
      this._rest = setTimeout(() => {
        this._resting = true;
        clearTimeout(this._again);
        this._source.close();
        this._onState("resting", 0);
      }, UNSEEN_MS);
    } else if (this._resting) {
      this._resting = false;
      this._last = Date.now();
      this._open();
    }
  }
}
