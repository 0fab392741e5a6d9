// How often a thread woke up, and what a call failed with.
import DBus
import Foundation
import Glibc
import Testing

/// The folder of the calling thread in /proc.
func threadPath() -> String {
    var buffer = [CChar](repeating: 0, count: 256)
    let count = readlink("/proc/thread-self", &buffer, buffer.count - 1)
    return "/proc/"
        + String(decoding: buffer.prefix(max(0, count)).map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
}

/// How often that thread gave up the processor of itself.
func contextSwitches(_ threadPath: String) throws -> Int {
    let file = try #require(fopen(threadPath + "/status", "r"))
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 512)
    while fgets(&line, Int32(line.count), file) != nil {
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        if text.hasPrefix("voluntary_ctxt_switches:") {
            return try #require(Int(text.dropFirst(24).filter { $0.isNumber }))
        }
    }
    throw TestFailure()
}

struct TestFailure: Error {}

/// The bus error that `body` fails with; nil when it does not fail.
func failure<T>(_ body: () async throws -> T) async -> DBusError? {
    do {
        _ = try await body()
        return nil
    } catch {
        if error as? DBusError == nil { Issue.record("\(error)") }
        return error as? DBusError
    }
}

/// What `body` returns on a thread of its own: it may block.
func onThread<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}
