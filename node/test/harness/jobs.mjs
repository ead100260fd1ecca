// Jobs for workers: what can be ended, and what ends itself. Each tells by which thread of the system it runs.

import { execFileSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { current } from 'countermand/worker';
import { tell } from './tell.mjs';

const started = (tag) => tell('job', tag, { thread: readlinkSync('/proc/thread-self') });

export default ({ text }) => text;

/** Never yields. */
export function loop({ tag }) {
	started(tag);
	for (;;);
}

/** Sleeps in the system. */
export function wait({ tag }) {
	started(tag);
	Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

/** Awaits what never comes. */
export async function never({ tag }) {
	started(tag);
	setInterval(() => {}, 1000);
	await new Promise(() => {});
}

/** Is busy in the regular expression engine for longer than anybody waits. */
export function backtrack({ tag }) {
	started(tag);
	return /^(a+)+$/.test(`${'a'.repeat(60)}b`);
}

/** Is in a call of the system's that nothing can end from within, for longer than the process may live. */
export function native({ tag }) {
	started(tag);
	const asleep = JSON.stringify({ event: 'asleep', tag });
	// The child says so: by then this thread waits for it.
	const script = `echo '${asleep}' >&3; exec sleep 10 3>&-`;
	execFileSync('/bin/sh', ['-c', script], { stdio: ['ignore', 'ignore', 'ignore', 3] });
	tell('slept', tag);
}

/** Looks at its token, and cleans up. */
export function looks({ tag }) {
	const token = current();
	started(tag);
	try {
		for (;;) token.checkpoint();
	} catch (error) {
		tell('saw', tag, { name: error.name, cause: error.cause, token: token.cause });
		throw error;
	}
}

export function prints({ text }) {
	console.log(text);
	process.stdout.write(`${text}\n`);
	execFileSync('/bin/sh', ['-c', `echo '${text}'`], { stdio: 'inherit' });
	return text;
}

export function fails() {
	throw new RangeError('out of range');
}

/** Dies of what nobody catches. */
export async function dies() {
	setImmediate(() => {
		throw new Error('nobody caught this');
	});
	await new Promise(() => {});
}

export const exits = () => process.exit(3);
