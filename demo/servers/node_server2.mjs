// The demo's server on the TypeScript SDK 2.x. `guarded` on the command line changes one line, the last, and
// who runs what never asks its token: the tree of processes, and code that blocks.

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard, runInWorker } from 'countermand';
import { z } from 'zod';
import { loop, stuck } from './blocking.mjs';
import { freshTree, report, reported } from './report.mjs';

const server = new McpServer({ name: 'demo', version: '1.0.0' });

function tool(name, body) {
	const inputSchema = z.object({ tag: z.string(), seconds: z.number().default(0) });
	server.registerTool(name, { inputSchema }, async ({ tag, seconds }, ctx) => {
		await reported(tag, () => body(seconds, ctx.mcpReq.signal, tag));
		return { content: [{ type: 'text', text: tag }] };
	});
}

// Answers at once.
tool('echo', () => {});

// Awaits, and honours its signal.
tool('sleep', (seconds, signal) => sleep(seconds * 1000, undefined, { signal }));

// Swallows its cancellation, works on for a while and returns a result.
tool('stubborn', async (seconds, signal) => {
	await sleep(30_000, undefined, { signal }).catch(() => sleep(seconds * 1000));
});

// Blocks the event loop; a stock server has only its signal to look at.
tool('spin', (seconds, signal) => {
	const stopAsked = () => current()?.cancelled ?? signal.aborted;
	const end = performance.now() + seconds * 1000;
	while (performance.now() < end && !stopAsked());
});

// Block the thread that they run in, and never ask.
for (const blocking of [loop, stuck]) {
	tool(blocking.name, (seconds) => {
		if (process.argv[2] !== 'guarded') return blocking(seconds);
		return runInWorker(new URL('blocking.mjs', import.meta.url), seconds, { name: blocking.name });
	});
}

// Runs a command that leaves much behind.
tool('tree', (_seconds, signal, tag) => {
	const [command, args] = freshTree(tag);
	if (process.argv[2] === 'guarded') return current().run(command, args, { graceMs: 300 });
	return promisify(execFile)(command, args, { signal });
});

const manifest = new URL('../node_modules/@modelcontextprotocol/server/package.json', import.meta.url);
report('sdk', JSON.parse(readFileSync(manifest, 'utf8')).version);
await (process.argv[2] === 'guarded' ? guard(server) : server).connect(new StdioServerTransport());
