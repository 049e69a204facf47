#!/usr/bin/env node
// llama.cpp through node-llama-cpp's prebuilt binary, for prefill, as compare.py measures tierkv.
//
// usage: peer_llamacpp_node.mjs MODEL.gguf PROMPT THREADS KV NODE_MODULES
//
// Takes seconds to install, where llama-cpp-python has to be compiled. Only prefill: what the package adds to
// each token would make a small model's decode look slower than llama.cpp is. KV: f16, q8_0, q4_0. Install:
//     npm install --prefix .venv-peer/node node-llama-cpp@3.21.1
import {readFileSync} from "node:fs";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const [model, prompt, threads, kv, modules] = process.argv.slice(2);
const folder = resolve(modules, "node-llama-cpp");
const {version} = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
const {getLlama} = await import(pathToFileURL(join(folder, "dist/index.js")));

// The same ids on each run, which Math.random() can't give: a linear congruential generator's high bits.
function* randomIds(count, below) {
    for (let i = 0, state = 1; i < count; ++i) {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        yield Math.floor(state / 2 ** 32 * below);
    }
}

async function milliseconds(work) {
    const start = performance.now();
    await work();
    return performance.now() - start;
}

const llama = await getLlama({gpu: false, maxThreads: +threads, logLevel: "error", build: "never"});
const loaded = await llama.loadModel({modelPath: model});
const quantized = kv === "f16" ? {} : {experimentalKvCacheKeyType: kv, experimentalKvCacheValueType: kv};
const context = await loaded.createContext({
    contextSize: +prompt + 64, batchSize: 512, threads: +threads, flashAttention: true, ...quantized
});
const sequence = context.getSequence();
const ids = [...randomIds(+prompt, loaded.fileInfo.metadata.tokenizer.ggml.tokens.length)];
const read = () => sequence.evaluateWithoutGeneratingNewTokens(ids);
await read(); // first touch of buffers, thread start
await sequence.clearHistory();
const elapsed = await milliseconds(read);
const rate = +prompt / elapsed * 1000;
console.log(JSON.stringify({version: `node-llama-cpp ${version}`, prompt_per_second: rate}));
process.exit(0); // else the library's own threads keep Node alive
