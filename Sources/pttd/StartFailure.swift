// The exit status when pttd cannot run: permanent where a person has to repair something, after a pause where a retry
// may help.
import ArgumentParser
import Cryptography
import Files
import Glibc
import Settings

/// The reason of a failed start, for the supervisor of the program.
enum StartFailure {
    /// EX_CONFIG (sysexits.h): systemd does not start it again.
    static let mistake = ExitCode(78)
    /// What ends the pause before an end.
    static let endingSignals = [SIGTERM, SIGINT]

    /// The signals that end pttd.
    static var endings: sigset_t {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in endingSignals { sigaddset(&signals, signal) }
        return signals
    }

    /// The exit status: `mistake` where trying again changes nothing until a person mends something; else failure, after a pause (see
    /// `FailedStarts`), for systemd starts it again after a tenth of a second.
    static func status(_ error: any Error) -> ExitCode {
        guard mayPass(error) else { return mistake }
        FailedStarts.wait(FailedStarts.ofService.failed(), orUntil: endingSignals)
        return .failure
    }

    static func mayPass(_ error: any Error) -> Bool {
        switch error {
        case let error as SettingsError: error.mayPass
        case let error as FileError: error.mayPass
        case let error as IdentityError: error.mayPass
        default: true
        }
    }
}
