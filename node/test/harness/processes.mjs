// What the tools of the test server do with process trees, and how to see what is left of one.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const TREE = fileURLToPath(new URL('../../../tests/tree/tree.sh', import.meta.url));
const LIMIT = 30_000;

/** A folder for one run of the script, which is removed again. */
export async function withFolder(body) {
	const folder = mkdtempSync(path.join(tmpdir(), 'tree-'));
	try {
		return await body(folder);
	} finally {
		// Where a test has failed, some are there.
		for (const name of readdirSync(folder)) {
			const pid = Number(readFileSync(path.join(folder, name), 'utf8'));
			if (pid > 0 && alive([pid]).length > 0) process.kill(pid, 'SIGKILL');
		}
		rmSync(folder, { recursive: true, force: true });
	}
}

/** The processes of the tree, once all were there; `lasting` unless they may be gone again by now. */
export async function ready(folder, lasting = true) {
	await until(() => existsSync(path.join(folder, 'ready')), 'the tree is up');
	const names = ['wrapper', 'server', 'grandchild', 'session', 'daemon'];
	const pids = names.map((name) => Number(readFileSync(path.join(folder, name), 'utf8')));
	if (lasting) assert.deepEqual(alive(pids), pids);
	return pids;
}

/** Those of them that are there and are no zombies. */
export function alive(pids) {
	return pids.filter((pid) => {
		try {
			const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
			return !'ZX'.includes(stat[stat.lastIndexOf(') ') + 2]);
		} catch {
			return false;
		}
	});
}

export async function gone(pids) {
	await until(() => alive(pids).length === 0, `${pids} are gone`);
}

async function until(so, what) {
	const end = performance.now() + LIMIT;
	while (!so()) {
		assert.ok(performance.now() < end, `never: ${what}`);
		await sleep(2);
	}
}

/** All that `run` and `spawn` say, seen from within a handler. */
export async function processes(token) {
	const { code, signal, stdout, stderr } = await token.run('sh', ['-c', 'cat; echo oops >&2; exit 3'], {
		input: 'hello',
	});
	const env = { MARK: 'here', PATH: process.env.PATH };
	const where = await token.run('sh', ['-c', 'pwd; echo $MARK'], { cwd: '/usr', env });
	const killed = await token.run('sh', ['-c', 'kill -KILL $$']);
	const big = await token.run('cat', [], { input: Buffer.alloc(5_000_000, 'x') });
	const missing = await token.run('no-such-program').catch((error) => error);
	let nowhere;
	try {
		token.spawn('true', [], { cwd: '/no/such/folder' });
	} catch (error) {
		nowhere = error;
	}
	const cat = token.spawn('cat');
	cat.stdin.write('one');
	const [first] = await once(cat.stdout, 'data');
	cat.stdin.end(' two');
	const rest = await text(cat.stdout);
	const exited = await cat.exited;
	// Writes to who reads no more: an error of the stream, if anybody listens, and of nobody else.
	const deaf = token.spawn('sh', ['-c', 'exec <&-; echo closed; exec sleep 1000']);
	await once(deaf.stdout, 'data');
	await new Promise((resolve) => deaf.stdin.write('nobody', resolve));
	const stopped = await deaf.stop();
	await deaf[Symbol.asyncDispose]();
	const none = token.spawn('true', [], { stdio: 'ignore' });
	await none.exited;
	// Children of Node's own keep their exit status.
	const own = await Promise.all(
		Array.from({ length: 20 }, async (_, at) => {
			const child = spawn('sh', ['-c', `exit ${at}`]);
			const [code] = await once(child, 'exit');
			return code === at && (await token.run('sh', ['-c', `exit ${at}`])).code === at;
		}),
	);
	const tripped = token.child();
	tripped.cancel('no more');
	const refused = await tripped.run('true').catch((error) => error);
	const running = token.child();
	const run = running.run('sleep', ['1000']).catch((error) => error);
	running.cancel('enough');
	const cancelled = await run;
	return {
		run: { code, signal, stdout: `${stdout}`, stderr: `${stderr}` },
		where: `${where.stdout}`,
		killed: { code: killed.code, signal: killed.signal },
		big: big.stdout.length,
		missing: { code: missing.code, errno: missing.errno, path: missing.path },
		nowhere: { code: nowhere.code, path: nowhere.path },
		cat: { text: `${first}${rest}`, ...exited },
		stopped,
		none: [none.stdin, none.stdout, none.stderr],
		own: own.every(Boolean),
		refused: { name: refused.name, reason: refused.reason },
		cancelled: { name: cancelled.name, reason: cancelled.reason },
	};
}

/** Starts and trips so many trees; what this process had before and has after. */
export async function spawns(token, count) {
	async function one(at) {
		const child = token.child();
		if (at % 2 === 0) {
			const run = child.run('sh', ['-c', 'sleep 1000 & sleep 1000']).catch((error) => error.name);
			child.cancel();
			assert.equal(await run, 'AbortError');
		} else {
			const tree = child.spawn('sleep', ['1000']);
			child.cancel();
			await tree[Symbol.asyncDispose]();
		}
	}
	for (let at = 0; at < 10; at++) await one(at);
	const before = await held();
	for (let at = 0; at < count; at++) await one(at);
	return { before, after: await held() };
}

/** Descriptors, threads and children, once what was let go of is gone. */
export async function held() {
	for (let i = 0; i < 4; i++) {
		globalThis.gc?.();
		await sleep(5);
	}
	const children = readdirSync('/proc').filter((pid) => {
		if (!/^\d+$/.test(pid)) return false;
		try {
			const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
			return stat.slice(stat.lastIndexOf(') ') + 4).startsWith(`${process.pid} `);
		} catch {
			return false;
		}
	});
	return {
		fds: readdirSync('/proc/self/fd').length,
		threads: readdirSync('/proc/self/task').length,
		children: children.length,
	};
}
