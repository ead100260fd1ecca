// The package as npm installs it: packed, installed into an empty folder, imported and required, seen by
// the type checker as both, and under every example.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { call, cancel, Peer } from './harness/peer.mjs';
import { site } from './harness/site.mjs';

const NODE = fileURLToPath(new URL('..', import.meta.url));
const EXAMPLES = path.join(NODE, '../examples/node');
let folder;

function run(command, ...args) {
	try {
		return execFileSync(command, args, { cwd: folder, encoding: 'utf8' });
	} catch (error) {
		throw new Error(`${command} ${args.join(' ')}: ${error.stdout}${error.stderr}`);
	}
}

function modules(folder) {
	return readdirSync(folder).filter((name) => name.endsWith('.mjs'));
}

before(() => {
	folder = mkdtempSync(path.join(tmpdir(), 'countermand-'));
	writeFileSync(path.join(folder, 'package.json'), '{"name":"empty","private":true}');
	const [{ filename }] = JSON.parse(
		run('npm', 'pack', NODE, '--json', '--ignore-scripts', '--pack-destination', folder),
	);
	run(
		'npm',
		'install',
		'--no-audit',
		'--no-fund',
		'--prefer-offline',
		'--omit=optional',
		'--ignore-scripts',
		path.join(folder, filename),
	);
	// What the servers and the type checker need is the checkout's own.
	for (const name of ['@modelcontextprotocol', '@types', 'fastmcp', 'typescript', 'zod']) {
		symlinkSync(path.join(NODE, 'node_modules', name), path.join(folder, 'node_modules', name));
	}
});

before(() => {
	mkdirSync(path.join(folder, 'examples/jobs'), { recursive: true });
	for (const place of ['.', 'jobs']) {
		for (const file of modules(path.join(EXAMPLES, place))) {
			cpSync(path.join(EXAMPLES, place, file), path.join(folder, 'examples', place, file));
		}
	}
});

after(() => {
	rmSync(folder, { recursive: true, force: true });
});

test('the_package_is_one_whether_imported_or_required', () => {
	writeFileSync(
		path.join(folder, 'both.mjs'),
		`import * as esm from 'countermand';
		import { createRequire } from 'node:module';
		const cjs = createRequire(import.meta.url)('countermand');
		const names = ['guard', 'current', 'call', 'runInWorker', 'stats', 'StdioServerTransport', 'StdioClientTransport', 'Connection', 'CancelledError', 'RpcError'];
		for (const name of names) {
			if (typeof cjs[name] !== 'function' || cjs[name] !== esm[name]) throw new Error(name);
		}`,
	);
	run('node', 'both.mjs');
});

test('a_worker_runs_modules_of_both_kinds', () => {
	writeFileSync(
		path.join(folder, 'job.mjs'),
		`import { createRequire } from 'node:module';
		import * as esm from 'countermand/worker';
		const cjs = createRequire(import.meta.url)('countermand/worker');
		export default (data) => [data, esm.current === cjs.current, typeof esm.current()];`,
	);
	writeFileSync(
		path.join(folder, 'job.cjs'),
		`const { current } = require('countermand/worker');
		exports.echo = (data) => [data, typeof current()];`,
	);
	writeFileSync(
		path.join(folder, 'works.mjs'),
		`import { runInWorker } from 'countermand';
		const ran = [
			await runInWorker(new URL('job.mjs', import.meta.url), 1),
			await runInWorker(new URL('job.cjs', import.meta.url).pathname, 2, { name: 'echo' }),
		];
		process.stdout.write(JSON.stringify(ran));`,
	);
	assert.deepEqual(JSON.parse(run('node', 'works.mjs')), [
		[1, true, 'undefined'],
		[2, 'undefined'],
	]);
});

test('the_types_are_seen_by_tsc_in_both_module_systems', () => {
	const use = `import { call, Connection, current, guard, runInWorker, StdioClientTransport, StdioServerTransport } from 'countermand';
		import type { Call, CallState, Cause, Outcome, RunInWorkerOptions, Token } from 'countermand';
		import { current as inWorker, type WorkerToken } from 'countermand/worker';
		import { Client } from '@modelcontextprotocol/sdk/client/index.js';
		import { McpServer as V1 } from '@modelcontextprotocol/sdk/server/mcp.js';
		const token: Token | undefined = current();
		const cause: Cause | undefined = token?.cause;
		const signal: AbortSignal | undefined = token?.signal;
		const v1: V1 = guard(new V1({ name: 'a', version: '1' }));
		const connection = new Connection({ wire: 'stdio' });
		const verdicts: string[] = connection.receive('{}', 0).map(({ verdict }) => verdict);
		export const done: Promise<void> = v1.connect(new StdioServerTransport({ graceMs: 10 }));
		export { cause, signal, verdicts };
		const options: RunInWorkerOptions = { name: 'crunch', graceMs: 10 };
		export const sum: Promise<number> = runInWorker<number>('/crunch.mjs', [1, 2], options);
		const looking: WorkerToken | undefined = inWorker();
		export const seen: boolean | undefined = looking?.cancelled;
		export async function loops(token: Token, response: Response, input: NodeJS.ReadableStream): Promise<void> {
			for (const i of token.guard([1])) i.toFixed();
			for await (const chunk of token.guard(response.body!)) chunk.byteLength.toFixed();
			for await (const _ of token.guard(input));
			const cleaned: string = await token.shield(100, async (shield) => String(shield.cancelled));
			// @ts-expect-error a number is nothing to loop over
			token.guard(cleaned.length);
		}
		export async function calls(client: Client): Promise<string> {
			await client.connect(new StdioClientTransport({ command: 'server', args: ['-v'], stderr: 'pipe', graceMs: 10 }));
			const handle: Call<{ text: string }> = call(client, 'tools/call', { name: 'x' }, { idleMs: 1, totalMs: 2, parent: token });
			for await (const { progress, total } of handle.progress) progress.toFixed(total);
			const state: CallState = handle.state;
			const outcome: Outcome = handle.outcome;
			handle.cancel('enough');
			// @ts-expect-error a handle is no promise
			handle.then(state, outcome);
			return (await handle.result).text;
		}
		// @ts-expect-error a server is needed
		guard(1);`;
	const v2 = `
		import { McpServer } from '@modelcontextprotocol/server';
		import { serveStdio } from '@modelcontextprotocol/server/stdio';
		serveStdio(guard(() => new McpServer({ name: 'a', version: '1' })));
		const server: McpServer = guard(new McpServer({ name: 'a', version: '1' }));
		export const also: Promise<void> = server.connect(new StdioServerTransport());
		import { Client as Client2 } from '@modelcontextprotocol/client';
		export const third: Promise<void> = new Client2({ name: 'a', version: '1' }).connect(new StdioClientTransport({ command: 'x' }));`;
	writeFileSync(path.join(folder, 'use.mts'), use + v2);
	writeFileSync(path.join(folder, 'use.cts'), use + v2);
	const options = ['--module', 'node16', '--moduleResolution', 'node16', '--target', 'es2022', '--strict'];
	const checks = ['--noEmit', '--skipLibCheck', '--preserveSymlinks', '--types', 'node'];
	run('node', 'node_modules/typescript/bin/tsc', ...options, ...checks, 'use.mts', 'use.cts');
});

/** Their tools keep the loop for themselves. */
const BLOCKING = ['sdk1.mjs', 'transport.mjs'];

const runs = modules(EXAMPLES).flatMap((file) =>
	file === 'fastmcp.mjs' ? ['--import', '--require'].map((option) => [file, option]) : [[file]],
);
for (const [file, option] of runs) {
	test(`the_example_${file}_stops_when_it_is_cancelled ${option ?? ''}`, async () => {
		const web = await site();
		const left = mkdtempSync(path.join(folder, 'tmp-'));
		const register = option === undefined ? [] : [option, 'countermand/register'];
		const server = spawn('node', [...register, `examples/${file}`], {
			cwd: folder,
			env: { ...process.env, METRICS_PORT: '0', TMPDIR: left },
			stdio: ['pipe', 'pipe', 'inherit'],
		});
		const exit = once(server, 'exit');
		const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
		const next = async () => JSON.parse((await lines.next()).value);
		const write = (message) => server.stdin.write(`${JSON.stringify(message)}\n`);
		const ping = async (id) => {
			write({ jsonrpc: '2.0', id, method: 'ping' });
			assert.equal((await next()).id, id);
		};
		write(Peer.initialize);
		await next();
		write({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
		const [{ name, inputSchema }] = (await next()).result.tools;
		write(call(2, name, { below: 1e12, seconds: 1e6, url: web.url('drip', file) }));
		if (!BLOCKING.includes(file)) await ping(3);
		const asks = inputSchema.properties?.url !== undefined;
		if (asks) await web.asked(file);
		write(cancel(2));
		await ping(4);
		if (asks) await web.closed(file);
		server.stdin.end();
		assert.deepEqual(await exit, [0, null]);
		assert.equal((await lines.next()).done, true, 'nothing more was sent');
		assert.deepEqual(readdirSync(left), []);
		web.end();
	});
}
