/**
 * Lines of the SDK's, read as far as the wire needs them.
 */

import type { Message } from './mcp.js';

/** An id and the end of its message, without the escapes that would take a parser. */
const SIMPLE_ID = /^(?:"([^"\\]*)"|(-?\d{1,15}))\}\n$/;

/** What is needed of an answer in the form that the SDKs give it, `{"result":…,"id":…}`. */
export function answer(line: string): Message | undefined {
	const at = line.lastIndexOf(',"id":');
	if (at < 0 || !line.startsWith('{"result":')) return undefined;
	const id = SIMPLE_ID.exec(line.slice(at + ',"id":'.length));
	if (id === null) return undefined;
	return { jsonrpc: '2.0', id: id[1] ?? Number(id[2]) };
}

export function parse(line: string): Message | undefined {
	try {
		return JSON.parse(line) as Message;
	} catch {
		// Not ours to judge: the core decides what is written.
		return undefined;
	}
}
