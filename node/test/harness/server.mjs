// A real server on each way in: `server.mjs v1|v2|serve|fm|drop1|drop2 [stock]`; `fm` is guarded by
// `--import countermand/register`. Tools for whatever a cancel must reach are in `reach.mjs`.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { call, current, StdioServerTransport as Drop, guard, StdioClientTransport, stats } from 'countermand';
import { z } from 'zod';
import { alive, processes, spawns, TREE } from './processes.mjs';
import { reach } from './reach.mjs';
import { tell } from './tell.mjs';

const [way, stock] = process.argv.slice(2);
const FAKE = fileURLToPath(new URL('fake.mjs', import.meta.url));

const aborted = (signal) =>
	new Promise((resolve) => {
		if (signal.aborted) resolve();
		else signal.addEventListener('abort', resolve, { once: true });
	});

let open = () => {};
let gate = new Promise((resolve) => {
	open = resolve;
});

// Each takes its arguments and { signal, progress }, and returns its text.
const tools = {
	...reach,
	echo: ({ text }) => text,
	// Tells what reached it.
	mirror: ({ text }, { id }) => {
		const sum = createHash('sha256').update(text).digest('hex');
		tell('mirror', sum, { id, length: text.length });
		return text;
	},
	// Only listens to the SDK's own signal.
	listen: async (_args, { signal }) => {
		await aborted(signal);
		return 'aborted';
	},
	// Honours its token in the ways that a token offers.
	token: async ({ tag }) => {
		const token = current();
		const child = token.child();
		child.onCancel((cause) => tell('child', tag, { cause }));
		const unwanted = token.onCancel(() => tell('unregistered', tag));
		unwanted();
		const cause = await token.whenCancelled();
		let thrown;
		try {
			token.checkpoint();
		} catch (error) {
			thrown = error;
		}
		const { name, reason } = token.signal.reason;
		tell('token', tag, {
			cause,
			reason: token.reason,
			id: String(token.requestId),
			thrown: thrown?.name,
			aborted: token.signal.aborted,
			signal: { name, reason, cause: token.signal.reason.cause },
			child: child.cancelled,
			born: token.child().cancelled,
		});
		return 'done';
	},
	// Is cancelled, and goes on in one of the ways that handlers have.
	stubborn: async ({ how, ms = 0 }, { signal, progress }) => {
		if (how === 'progress') {
			for (let i = 0; i < 20; i++) {
				await progress(i);
				await sleep(5);
			}
			return 'done';
		}
		await aborted(signal);
		if (ms) await sleep(ms);
		if (how === 'throw') throw new Error('cleanup failed');
		return 'swallowed';
	},
	// Blocks the loop.
	spin: ({ ms = 30_000 }) => {
		const token = current();
		const end = performance.now() + ms;
		while (performance.now() < end && !token?.cancelled);
		return 'spun';
	},
	// Blocks the loop with eyes shut.
	block: ({ ms }) => {
		const end = performance.now() + ms;
		while (performance.now() < end);
		return 'blocked';
	},
	sleep: async ({ ms }) => {
		await sleep(ms);
		return 'slept';
	},
	// Cancels itself, with nobody asking for it.
	selfish: async () => {
		throw new DOMException('This operation was aborted', 'AbortError');
	},
	// Cancels its own token.
	resign: async ({ tag }) => {
		const token = current();
		token.cancel('enough');
		tell('resigned', tag, { cause: token.cause, reason: token.reason, aborted: token.signal.aborted });
		await sleep(5);
		return 'resigned';
	},
	// Says who it is, after an await of every kind.
	whoami: async ({ at }) => {
		if (at === 'gate') await gate;
		if (at === 'timer') await sleep(2);
		if (at === 'immediate') await new Promise((resolve) => setImmediate(resolve));
		if (at === 'opens') {
			open();
			gate = new Promise((resolve) => {
				open = resolve;
			});
		}
		return String(current()?.requestId);
	},
	// Has its answer at hand, or awaits it.
	cached: async ({ at }) => {
		if (at === 'hit') return 'hit';
		await sleep(5);
		return String(current()?.requestId);
	},
	// Asks another server, in its own log, on behalf of its request; blind and deaf meanwhile, if it is to be.
	relay: async ({ tag, folder: log, how, ms = 0 }) => {
		const transport = new StdioClientTransport({ command: process.execPath, args: [FAKE, log] });
		await transport.start();
		const asked = call(transport, 'tools/call', { name: 'never' });
		const apart = call(transport, 'tools/call', { name: 'never' }, { parent: null });
		while (!existsSync(log) || !readFileSync(log, 'utf8').includes('never')) await sleep(2);
		tell('relayed', tag);
		const end = performance.now() + ms;
		if (how === 'blocked')
			while (performance.now() < end && !readFileSync(log, 'utf8').includes('cancelled'));
		const error = await asked.result.catch((error) => error);
		tell('relay over', tag, {
			name: error.name,
			cause: error.cause,
			reason: error.reason,
			state: asked.state,
			apart: apart.state,
		});
		apart.cancel();
		const { outbound, watches } = stats(transport);
		tell('relay left', tag, { outbound, watches });
		await transport.close();
		return 'relayed';
	},
	// Asks the peer something in its turn, and tells what came of it.
	ask: async ({ tag, how, at }, { ask }) => {
		if (at === 'later') await sleep(2);
		if (at === 'after the cancel') await current().whenCancelled();
		try {
			const { action, content } = await ask[how]();
			tell('told', tag, { action, content });
			return 'asked';
		} catch (error) {
			tell('refused', tag, { code: error.code, cancelled: current()?.cancelled });
			throw error;
		}
	},
	stray: () => {
		console.log('{"stray":"console.log"}');
		process.stdout.write('{"stray":"process.stdout.write"}\n');
		writeSync(1, '{"stray":"fd 1"}\n');
		execFileSync('/bin/sh', ['-c', 'echo "{\\"stray\\":\\"child\\"}"'], { stdio: 'inherit' });
		return 'strayed';
	},
	// Reads what is left of stdin: nothing.
	stdin: async () => {
		let text = '';
		for await (const chunk of process.stdin) text += chunk;
		return `read ${text.length}`;
	},
	subprocess: async ({ tag }) => {
		const child = spawn('sleep', ['30'], { stdio: 'ignore' });
		tell('child', tag, { pid: child.pid });
		await new Promise((resolve) => child.on('exit', resolve));
		return 'done';
	},
	// The tree of tests/tree/tree.sh, which does what it can to stay.
	tree: ({ folder }) => current().run('sh', [TREE, folder], { graceMs: 200 }),
	// The same, by a handler that is deaf to its cancel.
	deafTree: async ({ folder }) => {
		const child = current().spawn('sh', [TREE, folder], { graceMs: 200 });
		await child.exited;
		await child.stop();
		return 'deaf';
	},
	// ... that awaits something else.
	forgottenTree: async ({ folder }, { signal }) => {
		current().spawn('sh', [TREE, folder], { graceMs: 200 });
		await aborted(signal);
		return 'forgotten';
	},
	// ... that returns without a look back once the tree is up.
	returnsFromTree: async ({ folder }) => {
		current().spawn('sh', [TREE, folder], { graceMs: 200 });
		while (!existsSync(`${folder}/ready`)) await sleep(2);
		return 'returned';
	},
	// ... that blocks the loop, deaf to its token, until the tree is gone.
	blockedTree: ({ folder }) => {
		const { pid } = current().spawn('sh', [TREE, folder], { graceMs: 200 });
		while (alive([pid]).length > 0);
		return 'blocked';
	},
	// All that `run` and `spawn` say.
	processes: async () => JSON.stringify(await processes(current())),
	// So many trees that are started and tripped, and what this process had before and has after.
	spawns: async ({ ms: count }) => JSON.stringify(await spawns(current(), count)),
	stats: () => JSON.stringify(stats() ?? {}),
	memory: async () => {
		for (let i = 0; i < 4; i++) {
			globalThis.gc();
			await sleep(5);
		}
		const { heapUsed, rss } = process.memoryUsage();
		return JSON.stringify({ heapUsed, rss });
	},
};

async function told(name, args, context) {
	const { tag } = args;
	if (tag === undefined) return tools[name](args, context);
	tell('start', tag);
	context.signal?.addEventListener('abort', () => tell('abort', tag), { once: true });
	try {
		return await tools[name](args, context);
	} finally {
		tell('exit', tag);
	}
}

const ANY = z.looseObject({});

const args = {
	tag: z.string().optional(),
	text: z.string().optional(),
	how: z.string().optional(),
	at: z.string().optional(),
	ms: z.number().optional(),
	folder: z.string().optional(),
};

const FORM = {
	message: 'Sure?',
	requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } } },
};
const PROMPT = { messages: [{ role: 'user', content: { type: 'text', text: 'Hm?' } }], maxTokens: 9 };

const report = (context, notify, token) => (progress) =>
	notify.call(context, {
		method: 'notifications/progress',
		params: { progressToken: token, progress, total: 20 },
	});

async function v1() {
	const { McpServer } = await import('@modelcontextprotocol/sdk/server/mcp.js');
	const server = new McpServer({ name: 'test', version: '1.0.0' });
	for (const name of Object.keys(tools)) {
		server.registerTool(name, { inputSchema: args }, async (input, extra) => {
			const progress = report(extra, extra.sendNotification, extra._meta?.progressToken);
			const ask = {
				elicit: () => server.server.elicitInput(FORM),
				sample: () => server.server.createMessage(PROMPT),
				related: () => extra.sendRequest({ method: 'elicitation/create', params: FORM }, ANY),
				both: () => server.server.elicitInput(FORM, { signal: extra.signal }),
				handle: () => call(server, 'elicitation/create', FORM, { parent: current() }).result,
			};
			return {
				content: [
					{
						type: 'text',
						text: await told(name, input, { id: extra.requestId, signal: extra.signal, progress, ask }),
					},
				],
			};
		});
	}
	return server;
}

async function v2() {
	const { McpServer } = await import('@modelcontextprotocol/server');
	const server = new McpServer({ name: 'test', version: '1.0.0' });
	for (const name of Object.keys(tools)) {
		server.registerTool(name, { inputSchema: z.object(args) }, async (input, { mcpReq }) => {
			const progress = report(mcpReq, mcpReq.notify, mcpReq._meta?.progressToken);
			const ask = {
				elicit: () => server.server.elicitInput(FORM),
				sample: () => server.server.createMessage(PROMPT),
				related: () => mcpReq.elicitInput(FORM),
				both: () => server.server.elicitInput(FORM, { signal: mcpReq.signal }),
				handle: () => call(server, 'elicitation/create', FORM, { parent: current() }).result,
			};
			return {
				content: [
					{
						type: 'text',
						text: await told(name, input, { id: mcpReq.id, signal: mcpReq.signal, progress, ask }),
					},
				],
			};
		});
	}
	return server;
}

const options = JSON.parse(process.env.COUNTERMAND_OPTIONS ?? '{}');
const guarded = (server) => (stock ? server : guard(server, options));

const start = {
	async v1() {
		const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
		await guarded(await v1()).connect(new StdioServerTransport());
	},
	async v2() {
		const { StdioServerTransport } = await import('@modelcontextprotocol/server/stdio');
		await guarded(await v2()).connect(new StdioServerTransport());
	},
	async serve() {
		const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
		serveStdio(guarded(v2));
	},
	async drop1() {
		await (await v1()).connect(new Drop(options));
	},
	async drop2() {
		await (await v2()).connect(new Drop(options));
	},
	async fm() {
		const { FastMCP } = await import('fastmcp');
		const server = new FastMCP({ name: 'test', version: '1.0.0' });
		for (const name of Object.keys(tools)) {
			server.addTool({
				name,
				parameters: z.object(args),
				execute: (input, { signal, reportProgress }) =>
					told(name, input, { signal, progress: (progress) => reportProgress({ progress, total: 20 }) }),
			});
		}
		await server.start({ transportType: 'stdio' });
	},
};

await start[way]();
