/**
 * Which wire a transport has, and whatever is connected to one.
 */

import { isObject } from './mcp.js';
import type { Wire } from './wire.js';

/** The wires of transports that were started. */
export const wires = new WeakMap<object, Wire>();

/** The wire of a transport of ours, or of what is connected to one: a client or server of either SDK. */
export function wireOf(at: object): Wire | undefined {
	const { transport, server } = at as { transport?: unknown; server?: { transport?: unknown } };
	for (const found of [at, transport, server?.transport]) {
		const wire = isObject(found) ? wires.get(found) : undefined;
		if (wire !== undefined) return wire;
	}
	return undefined;
}
