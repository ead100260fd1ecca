// Clients of both SDKs on the engine's transport, and a server that does what none should.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once, setMaxListeners } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import * as stock from '@modelcontextprotocol/sdk/client/stdio.js';
import { call, getDefaultEnvironment, StdioClientTransport } from 'countermand';
import { CLIENTS, Fake, warnings } from './harness/fakes.mjs';
import { alive, gone, held, ready, TREE } from './harness/processes.mjs';
import { until } from './harness/until.mjs';

after(() => Fake.end());

const isCancel = ({ method }) => method === 'notifications/cancelled';
const code = (error) => error.code;

describe('clients', { concurrency: 1 }, () => {
	for (const sdk of Object.keys(CLIENTS)) {
		test(`k07_late_and_second_responses_and_k22_late_progress_are_no_errors_${sdk}`, async () => {
			const fake = await Fake.open(sdk);
			const told = [];
			const controller = new AbortController();
			const given = fake.tool('late', { signal: controller.signal, onprogress: (seen) => told.push(seen) });
			await fake.hears(({ params }) => params?.name === 'late', 'the call');
			controller.abort('enough');
			await assert.rejects(given);
			await fake.hears(isCancel, 'its cancel');
			await fake.well();
			assert.deepEqual(fake.cancels, fake.calls('late'));
			const timed = fake.tool('late', { timeout: 20 });
			await assert.rejects(timed);
			await until(() => fake.cancels.length === 2, 'the second cancel');
			await fake.well();
			assert.deepEqual(told, []);
			const { lateResponses, lateProgress, outbound } = fake.stats;
			assert.deepEqual([lateResponses, lateProgress, outbound], [4, 4, 0]);
			await fake.close();
		});

		test(`k07_wrong_ids_and_types_and_k22_progress_of_nobody_are_no_errors_${sdk}`, async () => {
			const fake = await Fake.open(sdk);
			const told = [];
			assert.equal(await fake.tool('odd', { onprogress: (seen) => told.push(seen) }), 'right');
			assert.equal(await fake.tool('odd'), 'right');
			await fake.well();
			assert.deepEqual(told, []);
			assert.deepEqual(fake.cancels, []);
			const { unknownResponses, wrongTypeResponses, duplicateResponses } = fake.stats;
			assert.deepEqual([unknownResponses, wrongTypeResponses, duplicateResponses], [10, 2, 4]);
			await fake.close();
		});

		test(`k14_15_finished_calls_on_one_signal_send_no_cancel_${sdk}`, async () => {
			const fake = await Fake.open(sdk);
			const controller = new AbortController();
			const { signal } = controller;
			// SDK 1.x leaves a listener behind with every call.
			setMaxListeners(0, signal);
			for (let i = 0; i < 15; i++) assert.equal(await fake.tool('echo', { signal }), 'echo');
			controller.abort();
			await fake.tool('echo');
			assert.deepEqual(fake.cancels, []);
			await fake.close();
		});

		test(`k23_an_initialize_that_times_out_is_not_cancelled_and_leaves_no_process_${sdk}`, async () => {
			const fake = new Fake(sdk, { mute: true });
			const rejected = assert.rejects(fake.client.connect(fake.transport, { timeout: 200 }));
			await fake.hears(({ method }) => method === 'initialize', 'the handshake');
			const { pid } = fake.transport;
			await rejected;
			await fake.transport.close();
			assert.deepEqual(alive([pid]), []);
			assert.deepEqual(fake.cancels, []);
			assert.deepEqual(fake.errors, []);
		});

		test(`k27_closed_while_it_initializes_it_leaves_no_process_and_starts_again_${sdk}`, async () => {
			const fake = new Fake(sdk, { mute: true });
			const rejected = assert.rejects(fake.client.connect(fake.transport));
			await fake.hears(({ method }) => method === 'initialize', 'the handshake');
			const { pid } = fake.transport;
			await fake.client.close();
			assert.deepEqual(alive([pid]), []);
			await rejected;
			assert.deepEqual(fake.cancels, []);
			await fake.transport.start();
			assert.notEqual(fake.transport.pid, pid);
			await fake.transport.close();
		});

		test(`i5_a_server_that_dies_rejects_every_call_at_once_${sdk}`, async () => {
			const fake = await Fake.open(sdk);
			let closed = 0;
			fake.client.onclose = () => closed++;
			const mine = call(fake.client, 'tools/call', { name: 'never' });
			await Promise.all([assert.rejects(fake.tool('never')), assert.rejects(fake.tool('die'))]);
			await assert.rejects(mine.result, { name: 'DisconnectedError', outcome: 'unknown' });
			assert.equal(mine.state, 'disconnected');
			await fake.close();
			assert.equal(closed, 1);
			assert.deepEqual(fake.errors, []);
			const after = call(fake.transport, 'ping');
			assert.deepEqual([after.state, after.outcome], ['disconnected', 'not_sent']);
			await assert.rejects(fake.transport.send({ jsonrpc: '2.0', method: 'x' }), /Not connected/);
		});

		test(`k04_a_wrapper_and_all_that_it_started_are_gone_after_close_${sdk}`, async () => {
			const folder = mkdtempSync(path.join(tmpdir(), 'tree-'));
			// As npx does it: a shell between, and a server that starts what wants to stay.
			const wrap = (command, args) => ({
				command: 'sh',
				args: ['-c', '(sh "$0" "$1" &) >&2; shift; "$@"; exit', TREE, folder, command, ...args],
			});
			const fake = await Fake.open(sdk, { wrap, closeWaitMs: 100, graceMs: 200, stderr: 'ignore' });
			const pids = await ready(folder);
			await fake.well();
			await fake.close();
			assert.deepEqual(alive(pids), []);
			rmSync(folder, { recursive: true });
		});
	}

	test('k04_servers_end_with_a_client_that_is_killed', async () => {
		const script = `import { StdioClientTransport } from 'countermand';
			const transport = new StdioClientTransport({ command: 'sh', args: ['-c', 'sleep 1000 & echo $! $$ >&2; wait'] });
			await transport.start();`;
		const client = spawn(process.execPath, ['--input-type=module', '-e', script], {
			stdio: ['ignore', 'ignore', 'pipe'],
		});
		const [line] = await once(client.stderr, 'data');
		const pids = String(line).trim().split(' ').map(Number);
		assert.equal(alive(pids).length, 2);
		client.kill('SIGKILL');
		await gone(pids);
	});

	test('i11_nothing_left_of_20_servers_that_were_started_and_closed', async () => {
		const one = async () => {
			const fake = await Fake.open('v2', { stderr: 'pipe' });
			assert.equal(await fake.tool('echo'), 'echo');
			const given = call(fake.client, 'tools/call', { name: 'never' });
			await fake.close();
			assert.equal(given.state, 'disconnected');
			assert.equal(fake.stats, undefined);
		};
		for (let i = 0; i < 4; i++) await one();
		const before = await held();
		for (let i = 0; i < 20; i++) await one();
		await until(() => readdirSync('/proc/self/task').length <= before.threads, 'the end of the threads');
		assert.deepEqual(await held(), before);
	});

	test('the_environment_is_that_of_the_sdks', async () => {
		process.env.SECRET_OF_THE_HOST = 'yes';
		assert.deepEqual(getDefaultEnvironment(), stock.getDefaultEnvironment());
		const transport = new StdioClientTransport({
			command: 'sh',
			args: ['-c', 'env >&2; pwd >&2; cat'],
			env: { OWN: 'mine' },
			cwd: '/usr',
			stderr: 'pipe',
		});
		let text = '';
		transport.stderr.on('data', (chunk) => {
			text += chunk;
		});
		assert.equal(transport.pid, null);
		await transport.start();
		await assert.rejects(transport.start(), /started already/);
		await until(() => text.includes('/usr\n'), 'the environment');
		await transport.close();
		assert.match(text, /^OWN=mine$/m);
		assert.match(text, /^PATH=/m);
		assert.doesNotMatch(text, /SECRET_OF_THE_HOST/);
		// Without a server, as often as one likes.
		await transport.close();
		await new StdioClientTransport({ command: 'cat' }).close();
	});

	test('what_cannot_be_started_says_so_as_nodes_own_spawn', async () => {
		const transport = new StdioClientTransport({ command: 'no-such-server' });
		const told = [];
		transport.onerror = (error) => told.push(error);
		await assert.rejects(transport.start(), { code: 'ENOENT', path: 'no-such-server' });
		assert.deepEqual(told.map(code), ['ENOENT']);
		await assert.rejects(new StdioClientTransport({ command: 'cat', cwd: '/no/such' }).start(), {
			code: 'ENOENT',
		});
		await assert.rejects(transport.send({}), /Not connected/);
	});

	test('what_is_no_json_is_told_and_ends_nothing', async () => {
		const transport = new StdioClientTransport({ command: 'cat' });
		const told = [];
		transport.onerror = (error) => told.push(error);
		transport.onmessage = (message) => told.push(message);
		await transport.start();
		await transport.send({ jsonrpc: '2.0', method: 'a' });
		await until(() => told.length === 1, 'the echo');
		assert.equal(told[0].method, 'a');
		let closed = 0;
		transport.onclose = () => closed++;
		await Promise.all([transport.close(), transport.close()]);
		assert.equal(closed, 1);
		await sleep(1);
		assert.deepEqual(warnings, []);
	});
});
