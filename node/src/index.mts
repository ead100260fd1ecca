/**
 * The ESM face of the package: the same objects as its CommonJS face, so that a process that mixes both
 * has one engine.
 */

export * from './index.js';
