// Other commands of the program beside the one that runs, and what is in the files of its state directory.
import Glibc

@testable import pttrelay

extension RunningProgram {
    /// How a command ended, and what it said.
    struct Outcome: Sendable {
        /// Its exit status, or 128 and the signal that ended it.
        let status: Int32
        let output: String
        let errors: String

        /// The lines of its output, with one space between words.
        var rows: [String] { output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") } }
    }

    /// Runs a command on the same state directory, and kills it when it takes longer than `time`.
    func command(_ words: [String], within time: Duration = .seconds(20)) async throws -> Outcome {
        // Not in the state directory: its output has secrets that the relay may not have.
        let scratch = try StateFolder()
        let id = try Self.spawn(
            words + ["--state", folder.path], output: scratch.path + "/output", errors: scratch.path + "/errors")
        let deadline = ContinuousClock.now + time
        var raw: Int32 = -1
        while waitpid(id, &raw, WNOHANG) == 0 {
            if ContinuousClock.now > deadline || Task.isCancelled { kill(id, SIGKILL) }
            try? await Task.sleep(for: .milliseconds(5))
        }
        return Outcome(
            status: raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F),
            output: Self.contents(scratch.path + "/output"), errors: Self.contents(scratch.path + "/errors"))
    }

    /// What the files of its state directory have, by their names.
    func files() -> [String: [UInt8]] {
        var files: [String: [UInt8]] = [:]
        for name in folder.names {
            let path = folder.path + "/" + name
            var status = stat()
            guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
            files[name] = Self.bytes(of: path)
        }
        return files
    }
}
