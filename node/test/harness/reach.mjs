// Tools that set off work which a cancel must reach: workers, loops, libraries with a signal, cleanup.

import { execFile, spawn } from 'node:child_process';
import { on, once } from 'node:events';
import http from 'node:http';
import { connect } from 'node:net';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as timers from 'node:timers/promises';
import { promisify } from 'node:util';
import { current, runInWorker } from 'countermand';
import { tell } from './tell.mjs';

const JOBS = new URL('./jobs.mjs', import.meta.url);
const forever = () => new Promise(() => {});
/** Something that waits keeps the loop alive, as a socket would. */
const busy = () => setInterval(() => {}, 1000);

/** Tells how it ended, if it did with an error. */
async function telling(tag, fn) {
	try {
		return await fn();
	} catch (error) {
		let thrown;
		try {
			current().checkpoint();
		} catch (cancelled) {
			thrown = cancelled;
		}
		tell('caught', tag, {
			name: error.name,
			message: error.message,
			cause: typeof error.cause === 'string' ? error.cause : undefined,
			same: error === thrown,
		});
		throw error;
	}
}

async function* slowly(tag) {
	try {
		for (let i = 0; ; i++) {
			yield i;
			await timers.setTimeout(5);
		}
	} finally {
		tell('closed', tag);
	}
}

function* quickly(tag) {
	try {
		for (let i = 0; ; i++) yield i;
	} finally {
		tell('closed', tag);
	}
}

async function through(tag, source) {
	let first = true;
	for await (const _ of source) {
		if (first) tell('looping', tag);
		first = false;
	}
	return 'ended';
}

/** Loops that end only because they are guarded. */
const loops = {
	iterable: (token, { tag }) => {
		for (const i of token.guard(quickly(tag))) if (i === 0) tell('looping', tag);
	},
	generator: (token, { tag }) => through(tag, token.guard(slowly(tag))),
	events: (token, { tag }) => {
		const ticker = busy();
		tell('looping', tag);
		return through(tag, token.guard(on(process, `never ${tag}`))).finally(() => {
			clearInterval(ticker);
			if (process.listenerCount(`never ${tag}`) === 0) tell('closed', tag);
		});
	},
	async socket(token, { tag, text }) {
		const { hostname, port, pathname, search } = new URL(text);
		const socket = connect(Number(port), hostname);
		socket.write(`GET ${pathname}${search} HTTP/1.1\r\nHost: x\r\n\r\n`);
		await through(tag, token.guard(socket));
	},
	async body(token, { tag, text }) {
		const response = await fetch(text);
		await through(tag, token.guard(response.body));
	},
};

/** What libraries make of a signal. */
const libraries = {
	fetch: (signal, { text }) => fetch(text, { signal }),
	'http.get': (signal, { text }) => once(http.get(text, { signal }), 'response'),
	async body(signal, { tag, text }) {
		const response = await fetch(text, { signal });
		await through(tag, response.body);
	},
	async pipeline(signal, { tag, text }) {
		// A pipeline alone does not interrupt a web stream that it waits for (Node 20).
		const response = await fetch(text, { signal });
		const sink = new Writable({
			write(_chunk, _encoding, written) {
				tell('looping', tag);
				written();
			},
			destroy: (error, done) => {
				tell('closed', tag);
				done(error);
			},
		});
		await pipeline(response.body, sink, { signal });
	},
	'timers.setTimeout': (signal) => timers.setTimeout(1e6, undefined, { signal }),
	async 'timers.setInterval'(signal, { tag }) {
		await through(tag, timers.setInterval(5, undefined, { signal }));
	},
	async execFile(signal, { tag }) {
		const running = promisify(execFile)('sleep', ['1000'], { signal });
		tell('child', tag, { pid: running.child.pid });
		await running;
	},
	async spawn(signal, { tag }) {
		const child = spawn('sleep', ['1000'], { signal, stdio: 'ignore' });
		tell('child', tag, { pid: child.pid });
		await once(child, 'exit');
	},
};

/** Each takes its arguments, and returns its text. */
export const reach = {
	// `how` is the job.
	worker: ({ tag, text, how, ms }) =>
		telling(tag, () => runInWorker(JOBS, { tag, text }, { name: how, graceMs: ms })),
	// Loops in a worker under a token of its own.
	workerOfChild: async ({ tag }) => {
		const child = current().child();
		const running = runInWorker(JOBS, { tag }, { name: 'loop', token: child });
		child.cancel('enough');
		const error = await running.catch((error) => error);
		return `${error.name} ${error.cause} ${error.reason} ${current().cancelled}`;
	},
	// Has no open handle but the promise that a worker's thread settles.
	loop: ({ how, ...args }) => telling(args.tag, () => loops[how](current(), args)),
	// Leaves its loop by itself.
	breaks: async ({ tag }) => {
		for await (const i of current().guard(slowly(tag))) if (i === 2) break;
		for (const i of current().guard(quickly(tag))) if (i === 2) break;
		let sum = 0;
		for (const i of current().guard([1, 2, 3])) sum += i;
		for await (const i of current().guard(new Blob(['ab']).stream())) sum += i.length;
		return String(sum);
	},
	library: ({ how, ...args }) =>
		telling(args.tag, async () => {
			const working = libraries[how](current().signal, args);
			tell('using', args.tag);
			await working;
			return 'done';
		}),
	// Cleans up, and may hang at it.
	cleanup: async ({ tag, how, ms }) => {
		const token = current();
		try {
			await timers.setTimeout(1e6, undefined, { signal: token.signal });
		} finally {
			const from = performance.now();
			const ended = await token
				.shield(ms, async (shield) => {
					const child = shield.child();
					child.onCancel((cause) => tell('late', tag, { cause, child: child.cancelled }));
					tell('cleaning', tag, {
						own: current() === shield,
						cancelled: shield.cancelled,
						aborted: shield.signal.aborted,
						id: shield.requestId,
					});
					if (how === 'hang') await forever();
					if (how === 'throw') throw new Error('cleanup failed');
					await timers.setTimeout(20, undefined, { signal: shield.signal });
					return 'clean';
				})
				.catch((error) => `${error.name} ${error.message}`);
			tell('cleaned', tag, { ended, took: performance.now() - from, own: current() === token });
		}
	},
	// Never comes back from its cleanup.
	hangs: async () => {
		const token = current();
		try {
			await timers.setTimeout(1e6, undefined, { signal: token.signal });
		} finally {
			await forever();
		}
	},
	handles: () =>
		JSON.stringify({
			listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
			resources: process.getActiveResourcesInfo().sort(),
		}),
};
