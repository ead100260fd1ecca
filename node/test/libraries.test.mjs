// Libraries that take a signal, and loops that are guarded: what they hold is let go of, and the other end sees it.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';
import { site } from './harness/site.mjs';
import { until } from './harness/until.mjs';

let web;
before(async () => {
	web = await site();
});
after(() => {
	web.end();
	Peer.end();
});

for (const way of WAYS) {
	describe(way, () => {
		let peer;
		before(async () => {
			peer = await Peer.open(way);
		});
		after(async () => {
			assert.equal((await peer.stats()).tokens, 1, 'i11_nothing_left');
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});
		async function using(tool, how, path = '') {
			const id = Peer.id();
			const tag = `${tool} ${how} ${id}`;
			peer.write(call(id, tool, { tag, how, text: web.url(path, tag) }));
			return { id, tag };
		}

		/** Cancels it; its tool hears of that by its own error, and its handler exits. */
		async function stops({ id, tag }, name = 'AbortError') {
			peer.write(cancel(id));
			const caught = await peer.event('caught', tag);
			assert.equal(caught.name, name);
			await peer.event('exit', tag);
			await peer.silent(id);
			return caught;
		}

		for (const [how, path] of [
			['fetch', 'silent'],
			['http.get', 'silent'],
			['body', 'drip'],
			['body', 'stall'],
			['pipeline', 'drip'],
			['pipeline', 'stall'],
		]) {
			test(`k28_${how}_${path}_closes_its_socket`, async () => {
				const used = await using('library', how, path);
				await peer.event(path === 'silent' ? 'using' : 'looping', used.tag);
				await web.asked(used.tag);
				await stops(used);
				await web.closed(used.tag);
			});
		}

		for (const how of ['timers.setTimeout', 'timers.setInterval']) {
			test(`k28_${how}_ends`, async () => {
				const used = await using('library', how);
				await peer.event(how.endsWith('Interval') ? 'looping' : 'using', used.tag);
				await stops(used);
			});
		}

		for (const how of ['execFile', 'spawn']) {
			test(`k28_${how}_kills_its_process`, async () => {
				const used = await using('library', how);
				const { pid } = await peer.event('child', used.tag);
				await stops(used);
				await until(() => !existsSync(`/proc/${pid}`), `the end of process ${pid}`);
			});
		}

		for (const [how, path] of [
			['iterable'],
			['generator'],
			['events'],
			['socket', 'drip'],
			['socket', 'stall'],
			['body', 'drip'],
			['body', 'stall'],
		]) {
			test(`k08_a_guarded_loop_over_${how}_${path ?? ''}_ends_and_closes_its_source`, async () => {
				const used = await using('loop', how, path);
				await peer.event('looping', used.tag);
				const { same } = await stops(used);
				assert.equal(same, true, 'with the error that checkpoint() throws');
				if (path === undefined) await peer.event('closed', used.tag);
				else await web.closed(used.tag);
			});
		}

		test('i3_no_loss_a_guarded_loop_that_nobody_cancels_is_a_loop', async () => {
			const tag = `breaks ${Peer.id()}`;
			assert.equal(await peer.text('breaks', { tag }), String(1 + 2 + 3 + 2));
			const closed = peer.events.all.filter(({ event, tag: of }) => event === 'closed' && of === tag);
			assert.equal(closed.length, 2, 'a source that is left is closed');
		});
	});
}
