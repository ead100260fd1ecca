// A peer of a real server process: raw JSON lines over its pipes, and the side channel of its tools.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** The ways in: guarded servers of each SDK, and the drop-in transport without a guard. */
export const WAYS = ['v1', 'v2', 'serve', 'fm', 'drop1', 'drop2'];
/** Those with a stock side to compare with. */
export const STOCK_WAYS = ['v1', 'v2', 'serve', 'fm'];

/** Nothing takes this long: what does is a failure. */
const LIMIT = 20_000;
const FOLDER = fileURLToPath(new URL('../..', import.meta.url));

const INITIALIZE = {
	jsonrpc: '2.0',
	id: 'init',
	method: 'initialize',
	params: {
		protocolVersion: '2025-06-18',
		capabilities: { sampling: {}, elicitation: {} },
		clientInfo: { name: 'peer', version: '1' },
	},
};

/** Things that come, and whoever waits for one of them. */
class Feed {
	all = [];
	#waiters = new Set();
	#ended = false;

	add(item) {
		this.all.push(item);
		for (const waiter of this.#waiters) waiter(item);
	}

	end() {
		this.#ended = true;
		for (const waiter of this.#waiters) waiter(undefined);
	}

	/** The first that is `wanted`, which may have come before. */
	async find(wanted, what, limit = LIMIT) {
		const there = this.all.find(wanted);
		return there ?? this.next(wanted, what, limit);
	}

	/** The next that is `wanted`. */
	async next(wanted, what, limit = LIMIT) {
		let waiter;
		let timer;
		const found = new Promise((resolve, reject) => {
			waiter = (item) => {
				if (item !== undefined && wanted(item)) resolve(item);
				else if (this.#ended) reject(new Error(`the server ended before ${what}`));
			};
			timer = setTimeout(() => reject(new Error(`${what} never came`)), limit);
			this.#waiters.add(waiter);
			waiter(undefined);
		});
		try {
			return await found;
		} finally {
			clearTimeout(timer);
			this.#waiters.delete(waiter);
		}
	}
}

export class Peer {
	static #open = new Set();
	static #ids = 1000;
	/** Messages of the server, in order. */
	messages = new Feed();
	/** Events of its tools. */
	events = new Feed();
	/** Bytes as they came. */
	bytes = [];
	stderr = '';
	#counts;

	constructor(way, { stock = false, node = [], options = {}, script = 'server.mjs', env = {} } = {}) {
		const args = [...node, `${FOLDER}test/harness/${script}`, way];
		if (stock) args.push('stock');
		else if (way === 'fm') args.unshift('--import', 'countermand/register');
		this.process = spawn(process.execPath, args, {
			cwd: FOLDER,
			env: { ...process.env, COUNTERMAND_OPTIONS: JSON.stringify(options), ...env },
			stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
		});
		this.exited = once(this.process, 'exit').then(([code, signal]) => ({ code, signal }));
		Peer.#open.add(this);
		const lines = (stream, feed) => {
			let rest = [];
			stream.on('data', (chunk) => {
				if (stream === this.process.stdout) this.bytes.push(chunk);
				let from = 0;
				for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
					const line = Buffer.concat([...rest, chunk.subarray(from, end)]).toString();
					rest = [];
					from = end + 1;
					feed.add(JSON.parse(line));
				}
				if (from < chunk.length) rest.push(chunk.subarray(from));
			});
			stream.on('end', () => feed.end());
			stream.on('error', () => feed.end());
		};
		lines(this.process.stdout, this.messages);
		lines(this.process.stdio[3], this.events);
		this.process.stderr.on('data', (chunk) => {
			this.stderr += chunk;
		});
		this.process.stdin.on('error', () => {});
	}

	/** A server that is ready for requests. */
	static async open(way, options) {
		const peer = new Peer(way, options);
		peer.write(INITIALIZE);
		await peer.answer('init');
		peer.write({ jsonrpc: '2.0', method: 'notifications/initialized' });
		return peer;
	}

	static get initialize() {
		return INITIALIZE;
	}

	/** Ends whatever a test left behind. */
	static end() {
		for (const peer of Peer.#open) peer.process.kill('SIGKILL');
		Peer.#open.clear();
	}

	/** An id that no other request of this process has. */
	static id() {
		return ++Peer.#ids;
	}

	/** Writes messages, or lines as they are, in one chunk. */
	write(...messages) {
		const lines = messages.map((message) =>
			typeof message === 'string' ? message : JSON.stringify(message),
		);
		this.process.stdin.write(`${lines.join('\n')}\n`);
	}

	/** The answer to a request. */
	answer(id) {
		const is = (message) => message.id === id && message.method === undefined;
		return this.messages.find(is, `an answer to ${JSON.stringify(id)}`);
	}

	/** The next request of the server's with this method. */
	asked(method) {
		return this.messages.next((message) => message.method === method, `a ${method}`);
	}

	/** The server's cancels for a request of its own. */
	cancels(id) {
		return this.messages.all.filter(
			({ method, params }) => method === 'notifications/cancelled' && params.requestId === id,
		);
	}

	/** How many answers came for a request, in a session that is over. */
	answered(id) {
		if (this.#counts === undefined) {
			this.#counts = new Map();
			for (const { id } of this.messages.all) this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
		}
		return this.#counts.get(id) ?? 0;
	}

	/** Lets go of all that has come. */
	forget() {
		this.messages.all = [];
		this.bytes = [];
	}

	answers(id) {
		return this.messages.all.filter((message) => message.id === id && message.method === undefined);
	}

	event(event, tag) {
		return this.events.find((seen) => seen.event === event && seen.tag === tag, `${event} of ${tag}`);
	}

	saw(event, tag) {
		return this.events.all.some((seen) => seen.event === event && seen.tag === tag);
	}

	/** Calls a tool, and returns its text. */
	async text(name, args = {}) {
		const id = Peer.id();
		this.write(call(id, name, args));
		const { result, error } = await this.answer(id);
		assert.equal(error, undefined, JSON.stringify(error));
		return result.content[0].text;
	}

	async stats() {
		return JSON.parse(await this.text('stats'));
	}

	/** What was said before this round trip has arrived when it returns. */
	async settled() {
		assert.equal(await this.text('echo', { text: 'still here' }), 'still here');
	}

	/** Nothing was ever said for this request, and the session lives. */
	async silent(...ids) {
		await this.settled();
		for (const id of ids) assert.deepEqual(this.answers(id), [], `an answer to ${JSON.stringify(id)}`);
	}
}

export function call(id, name, args = {}, meta) {
	const params = { name, arguments: args };
	if (meta !== undefined) params._meta = meta;
	return { jsonrpc: '2.0', id, method: 'tools/call', params };
}

export function cancel(requestId, reason) {
	const params = reason === undefined ? { requestId } : { requestId, reason };
	return { jsonrpc: '2.0', method: 'notifications/cancelled', params };
}
