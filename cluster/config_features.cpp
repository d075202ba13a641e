#include "cluster/config.hpp"

namespace troupe::cluster {

bool cuda_backend_available() {
  return false;
}

bool migration_available() {
  return false;
}

}  // namespace troupe::cluster
