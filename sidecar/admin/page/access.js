// The token, and requests that need it. It is kept for this tab only, and never in an address.

const KEY = "sidecar-token";
const DEADLINE_MS = 10_000;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export class Access {
  constructor(onChange) {
    this.mayChange = false;
    this.tokenHelps = false;
    this.reason = "";
    this._onChange = onChange;
    this._takeFromAddress();
    window.addEventListener("hashchange", () => {
      if (this._takeFromAddress()) this.look();
    });
  }

  /** Ask again what the token that there is allows. */
  async look() {
    try {
      const told = await this.read("v1/access");
      this.mayChange = told.may_change;
      this.tokenHelps = told.token_helps;
      this.reason = told.reason;
      this._onChange();
    } catch {
      // Not reachable: the stream says so, and asks again when it is back.
    }
  }

  get token() {
    return sessionStorage.getItem(KEY);
  }

  /** Resolves to "" if the token is right, else to why it is not. */
  async unlock(token) {
    sessionStorage.setItem(KEY, token);
    await this.look();
    if (this.mayChange) return "";
    sessionStorage.removeItem(KEY);
    return this.reason;
  }

  lock() {
    sessionStorage.removeItem(KEY);
    return this.look();
  }

  /** Make a change; ifMatch: the generation it is based on. Rejects with Refused. */
  async change(method, path, body, ifMatch) {
    const more = ifMatch === undefined ? {} : { "If-Match": `"${ifMatch}"` };
    try {
      return await this._ask(method, path, body, more);
    } catch (error) {
      if (error.status === 401 || error.status === 403) this.look();
      throw error;
    }
  }

  read(path) {
    return this._ask("GET", path);
  }

  async _ask(method, path, body, more = {}) {
    const headers = { ...more };
    // A header holds no other characters, and no token does either.
    if (/^[!-~]+$/.test(this.token ?? "")) headers.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(DEADLINE_MS),
        redirect: "error",
      });
    } catch {
      throw new Refused(0, "The sidecar does not answer; whether it was done is not known.");
    }
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refused(response.status, String(answer.detail ?? response.status));
    return answer;
  }

  /** #token=… as `sidecar demo` prints it: taken, and removed from the address bar at once. */
  _takeFromAddress() {
    const found = /^#token=(.+)$/.exec(location.hash);
    if (!found) return false;
    history.replaceState(null, "", location.pathname + location.search);
    try {
      sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    } catch {
      return false; // not well-formed, so no token
    }
    return true;
  }
}
