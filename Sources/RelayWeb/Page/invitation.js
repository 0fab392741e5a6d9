// Invitation links (docs/relay-protocol.md, section 2), as they stand in the address of the page behind '#'.
import { fromBase64url, unhex, utf8 } from "./bytes.js";
import { hasControls } from "./protobuf.js";

/** A link that is not one; `code` names the text for the person. */
export class InvitationError extends Error {
  constructor(code) {
    super(code);
    this.code = code;
  }
}

const scheme = "ptt://";
const linksMax = 16;
const lengthMax = 4096;

/**
 * The links in a text. Between them is white space or %20, which is also part of names: so it divides only behind the '?'.
 * @returns {string[]} without their scheme
 */
export function splitLinks(text) {
  const links = [];
  let rest = text.trim().replace(/^(%20)+/, "");
  while (rest !== "" && links.length < linksMax) {
    const query = rest.indexOf("?");
    const end = query < 0 ? -1 : rest.slice(query).search(/\s|%20/);
    const link = end < 0 ? rest : rest.slice(0, query + end);
    links.push(link.startsWith(scheme) ? link.slice(scheme.length) : link);
    rest = end < 0 ? "" : rest.slice(query + end).replace(/^(\s|%20)+/, "");
  }
  return links;
}

/** What the person pasted: a link, several, or the address of this page with them. */
export function linksIn(pasted) {
  const text = pasted.trim();
  const page = text.match(/^https?:\/\/[^#]*#(.*)$/s);
  return splitLinks(page ? page[1] : text);
}

function secret(text, min, max = min) {
  const bytes = text === undefined ? null : fromBase64url(text);
  if (!bytes || bytes.length < min || bytes.length > max) throw new InvitationError("link-broken");
  return bytes;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new InvitationError("link-broken");
  }
}

/** Reads one link, with or without its scheme. */
export function parseInvitation(text) {
  const link = text.startsWith(scheme) ? text.slice(scheme.length) : text;
  if (link.length > lengthMax) throw new InvitationError("link-broken");
  const parts = link.match(/^(\[[^\]/?#]+\]|[^:/?#[\]]+):([0-9]{1,5})\/([^/?#]*)\?([^#]*)(?:#(.*))?$/s);
  if (!parts) throw new InvitationError("link-broken");
  const [, host, portText, nameText, query, fragment] = parts;
  const port = Number(portText);
  if (port < 1 || port > 65535) throw new InvitationError("link-broken");
  const fields = new Map();
  for (const pair of [...query.split("&"), ...(fragment ?? "").split("&")]) {
    if (pair === "") continue;
    const at = pair.indexOf("=");
    const key = at < 0 ? pair : pair.slice(0, at);
    // One that appears twice says two things.
    if (fields.has(key)) throw new InvitationError("link-broken");
    fields.set(key, at < 0 ? "" : pair.slice(at + 1));
  }
  const channel = (fields.get("channel") ?? "").toLowerCase();
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(channel)) throw new InvitationError("link-broken");
  const name = decoded(nameText);
  if (name === "" || utf8(name).length > 128 || hasControls(name)) throw new InvitationError("link-broken");
  return {
    link, host: decoded(host), port, name, channel,
    channelId: unhex(channel.replaceAll("-", "")),
    token: secret(fields.get("token"), 16, 64),
    pin: secret(fields.get("pin"), 32),
    key: fields.has("key") ? secret(fields.get("key"), 16, 64) : null,
    web: fields.get("web") ?? null,
  };
}

/** The share that a channel is in: FNV-1a of its identifier, folded (docs/relay-protocol.md, section 21.1). */
export function shareOf(channelId) {
  const hash = channelId.reduce(
    (hash, byte) => BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n), 0xcbf29ce484222325n);
  return Number((hash ^ hash >> 32n) % 64n);
}
