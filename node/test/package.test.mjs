// The package as npm installs it: packed, installed into an empty folder, imported and required, seen by
// the type checker as both, and under every example.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { call, cancel, Peer } from './harness/peer.mjs';

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
		'--offline',
		'--ignore-scripts',
		path.join(folder, filename),
	);
	// What the servers and the type checker need is the checkout's own.
	for (const name of ['@modelcontextprotocol', '@types', 'fastmcp', 'typescript', 'zod']) {
		symlinkSync(path.join(NODE, 'node_modules', name), path.join(folder, 'node_modules', name));
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
		for (const name of ['guard', 'current', 'stats', 'StdioServerTransport', 'Connection', 'CancelledError']) {
			if (typeof cjs[name] !== 'function' || cjs[name] !== esm[name]) throw new Error(name);
		}`,
	);
	run('node', 'both.mjs');
});

test('the_types_are_seen_by_tsc_in_both_module_systems', () => {
	const use = `import { Connection, current, guard, StdioServerTransport, type Cause, type Token } from 'countermand';
		import { McpServer as V1 } from '@modelcontextprotocol/sdk/server/mcp.js';
		const token: Token | undefined = current();
		const cause: Cause | undefined = token?.cause;
		const signal: AbortSignal | undefined = token?.signal;
		const v1: V1 = guard(new V1({ name: 'a', version: '1' }));
		const connection = new Connection({ wire: 'stdio' });
		const verdicts: string[] = connection.receive('{}', 0).map(({ verdict }) => verdict);
		export const done: Promise<void> = v1.connect(new StdioServerTransport({ graceMs: 10 }));
		export { cause, signal, verdicts };
		// @ts-expect-error a server is needed
		guard(1);`;
	const v2 = `
		import { McpServer } from '@modelcontextprotocol/server';
		import { serveStdio } from '@modelcontextprotocol/server/stdio';
		serveStdio(guard(() => new McpServer({ name: 'a', version: '1' })));
		const server: McpServer = guard(new McpServer({ name: 'a', version: '1' }));
		export const also: Promise<void> = server.connect(new StdioServerTransport());`;
	writeFileSync(path.join(folder, 'use.mts'), use + v2);
	writeFileSync(path.join(folder, 'use.cts'), use + v2);
	const options = ['--module', 'node16', '--moduleResolution', 'node16', '--target', 'es2022', '--strict'];
	const checks = ['--noEmit', '--skipLibCheck', '--preserveSymlinks', '--types', 'node'];
	run('node', 'node_modules/typescript/bin/tsc', ...options, ...checks, 'use.mts', 'use.cts');
});

const examples = readdirSync(EXAMPLES).filter((name) => name.endsWith('.mjs'));
const runs = examples.flatMap((file) =>
	file === 'fastmcp.mjs' ? ['--import', '--require'].map((option) => [file, option]) : [[file]],
);
for (const [file, option] of runs) {
	test(`the_example_${file}_stops_when_it_is_cancelled ${option ?? ''}`, async () => {
		mkdirSync(path.join(folder, 'examples'), { recursive: true });
		cpSync(path.join(EXAMPLES, file), path.join(folder, 'examples', file));
		const register = option === undefined ? [] : [option, 'countermand/register'];
		const server = spawn('node', [...register, `examples/${file}`], {
			cwd: folder,
			env: { ...process.env, METRICS_PORT: '0' },
			stdio: ['pipe', 'pipe', 'inherit'],
		});
		const exit = new Promise((resolve) => server.on('exit', resolve));
		const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
		const next = async () => JSON.parse((await lines.next()).value);
		const write = (message) => server.stdin.write(`${JSON.stringify(message)}\n`);
		write(Peer.initialize);
		await next();
		write({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
		const [{ name }] = (await next()).result.tools;
		write(call(2, name, { below: 1e12, seconds: 1e6, url: 'http://127.0.0.1:9/' }));
		write({ jsonrpc: '2.0', id: 3, method: 'ping' });
		write(cancel(2));
		const ids = [(await next()).id];
		if (ids[0] !== 3) ids.push((await next()).id);
		assert.ok(ids.includes(3));
		server.stdin.end();
		assert.equal(await exit, 0);
	});
}
