// The reason of a failed start, for the supervisor: whether another try may succeed.
import ArgumentParser
import Cryptography
import Files
import Glibc
import QUIC
import Reactor
import RelayHTTP
import RelayServer
import RelayStore
import RelayWeb
import Settings
import Terminal

/// The reason of a failed start, for the supervisor of the program.
enum StartFailure {
    /// The exit status of a start that failed: `configurationMistake` where trying again changes nothing until a person mends something, and
    /// `failure` where it may, as with a full disk, a port in use, or a directory that another process has.
    static func status(_ error: any Error) -> ExitCode { mayPass(error) ? .failure : configurationMistake }

    /// The same of a relay that is to serve; after a pause where a supervisor will start it again.
    static func pausedStatus(_ error: any Error, orUntil signals: [Int32]) -> ExitCode {
        let starts = FailedStarts.ofService
        if starts.isKept, mayPass(error) { FailedStarts.wait(starts.failed(), orUntil: signals) }
        return status(error)
    }

    /// Does what a command does. An error is printed on standard error, and ends the program with its status.
    static func reporting(
        _ status: (any Error) -> ExitCode = StartFailure.status, _ body: () throws -> Void
    ) throws {
        do { try body() } catch {
            Console.complain("pttrelay: \(error)")
            throw status(error)
        }
    }

    static func mayPass(_ error: any Error) -> Bool {
        switch error {
        case let error as SettingsError: error.mayPass
        case let error as RelayStoreError: error.mayPass
        case let error as RelayStateError: error.mayPass
        case let error as IdentityError: error.mayPass
        case let error as FileError: error.mayPass
        case let error as RelayServerError: mayPass(error)
        case is PushEndpointError, is WebEndpointError: false
        default: true
        }
    }

    private static func mayPass(_ error: RelayServerError) -> Bool {
        switch error {
        case .system: true
        // A port below 1024, say.
        case .listen(_, .socket(let error, _)): error.code != EACCES && error.code != EPERM
        case .listen: true
        default: false
        }
    }
}
