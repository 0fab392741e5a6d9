// What is wrong with a node's part in its cluster, for the log.
import Logging

/// Logs each problem when it begins, changes or ends.
struct ClusterProblems {
    let logger: Logger
    private var problems: [String: String] = [:]

    init(logger: Logger) { self.logger = logger }

    /// How it is with `subject`; nil: well.
    mutating func note(_ error: (any Error)?, about subject: String) {
        let text = error.map { "\($0)" }
        guard problems[subject] != text else { return }
        problems[subject] = text
        guard let text else { return logger.notice("the problem is over", metadata: ["about": "\(subject)"]) }
        logger.warning("\(text)", metadata: ["about": "\(subject)"])
    }
}
