// The environment, without Foundation.
import Glibc

enum ProcessInfoEnvironment {
    static func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
