// A disk that may lose what was not waited for, and a process on it that ends at a given operation.

import Files
import Synchronization
import TestSupport

@testable import ChannelService

/// Files and names as a process sees them, and as they are on the disk.
///
/// After a loss of power a file has the bytes that were waited for, or any part of later ones; names are as at the last
/// wait for their directory, with any number of the changes after it, in order.
final class SimulatedDisk: RestorationFiles {
    private struct File {
        var bytes: [UInt8] = []
        var durable: [UInt8]?
    }

    private struct State {
        var files: [Int: File] = [:]
        var nextFile = 0
        /// Which file has which name, as the process sees it.
        var names: [String: Int] = [:]
        var durableNames: [String: Int] = [:]
        var changes: [(name: String, file: Int?)] = []
        var operationsLeft = Int.max
        var generator: SeededGenerator
    }

    private let state: Mutex<State>

    init(seed: UInt64) { state = Mutex(State(generator: SeededGenerator(seed: seed))) }
    private init(_ restarted: sending State) { state = Mutex(restarted) }

    /// The process ends within the operation after so many more.
    func dieAfter(_ operations: Int) { state.withLock { $0.operationsLeft = operations } }

    /// The disk as the next process finds it.
    func restarted(losesPower: Bool) -> SimulatedDisk {
        let after = state.withLock { old -> State in
            var new = State(generator: SeededGenerator(seed: old.generator.next()))
            var names = losesPower ? old.durableNames : old.names
            if losesPower {
                for (name, file) in old.changes.prefix(Int.random(in: 0...old.changes.count, using: &old.generator)) {
                    names[name] = file
                }
            }
            for (name, number) in names {
                guard let file = old.files[number] else { continue }
                var bytes = file.bytes
                if losesPower {
                    let part = bytes.prefix(Int.random(in: 0...bytes.count, using: &old.generator))
                    bytes = file.durable ?? Array(part)
                }
                new.nextFile += 1
                new.files[new.nextFile] = File(bytes: bytes, durable: bytes)
                new.names[name] = new.nextFile
            }
            new.durableNames = new.names
            return new
        }
        return SimulatedDisk(after)
    }

    private func operate<T>(
        _ path: String, dying: (inout State) -> Void = { _ in }, _ body: (inout State) -> T
    ) throws(RestorationStoreError) -> T {
        let result = state.withLock { state -> T? in
            guard state.operationsLeft > 0 else {
                if state.operationsLeft == 0 { dying(&state) }
                // It has ended: nothing it does comes to pass.
                state.operationsLeft = -1
                return nil
            }
            state.operationsLeft -= 1
            return body(&state)
        }
        guard let result else { throw .file(FileError("go on with", path, code: 4)) }
        return result
    }

    func read(_ path: String, byteCountMax: Int) throws(RestorationStoreError) -> [UInt8]? {
        try operate(path) { state in state.names[path].flatMap { state.files[$0]?.bytes } }
    }

    func write(_ bytes: [UInt8], to path: String) throws(RestorationStoreError) {
        func make(_ state: inout State, _ bytes: [UInt8], durable: Bool) {
            // As open(2) with O_TRUNC: a file of that name is emptied, and loses what was on the disk.
            var number = state.names[path]
            if number == nil {
                state.nextFile += 1
                number = state.nextFile
                state.names[path] = number
                state.changes.append((path, number))
            }
            if let number { state.files[number] = File(bytes: bytes, durable: durable ? bytes : nil) }
        }
        try operate(
            path,
            dying: {
                make(&$0, Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &$0.generator))), durable: false)
            }
        ) { make(&$0, bytes, durable: true) }
    }

    func rename(_ path: String, to other: String) throws(RestorationStoreError) {
        try operate(path) { state in
            guard let file = state.names.removeValue(forKey: path) else { return }
            state.names[other] = file
            // At once: a name that is taken over is never missing.
            state.changes.append((other, file))
            state.changes.append((path, nil))
        }
    }

    func remove(_ path: String) throws(RestorationStoreError) {
        try operate(path) { state in
            guard state.names.removeValue(forKey: path) != nil else { return }
            state.changes.append((path, nil))
        }
    }

    func synchronize(directory: String) throws(RestorationStoreError) {
        try operate(directory) { state in
            state.durableNames = state.names
            state.changes = []
        }
    }
}
