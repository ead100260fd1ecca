/**
 * `node --import countermand/register server.js`: puts the engine under the servers that a framework builds
 * for itself.
 *
 * Where the SDK 1.x that the program uses is found, its servers are guarded when they connect. In any case
 * the stdio transport that reads the process's stdin finds the engine's streams in its place.
 */

import { existsSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { guardEvery } from './guard.js';
import type { Connectable } from './mcp.js';
import './register.js';

const SERVER = '@modelcontextprotocol/sdk/server/index.js';

// A worker inherits the option, but not the stdin.
if (isMainThread) {
	const url = sdkServer();
	if (url !== undefined) {
		const { Server } = (await import(url)) as { Server: { prototype: object } };
		const shared = withConnect(Server.prototype);
		if (shared !== undefined) guardEvery(shared);
	}
}

/** The module that an `import` in the program's own file means. */
function sdkServer(): string | undefined {
	try {
		const entry = realpathSync(process.argv[1] ?? '');
		const required = createRequire(entry).resolve(SERVER);
		const imported = required.replace(`${sep}cjs${sep}`, `${sep}esm${sep}`);
		return existsSync(imported) ? pathToFileURL(imported).href : undefined;
	} catch {
		return undefined; // No program file, or none that uses this SDK.
	}
}

/** Where a server has its `connect` from, which its SDK's clients share. */
function withConnect(prototype: object): Connectable | undefined {
	for (let at: object | null = prototype; at !== null; at = Object.getPrototypeOf(at)) {
		if (Object.hasOwn(at, 'connect')) return at as Connectable;
	}
	return undefined;
}
